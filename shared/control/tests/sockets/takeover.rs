//! One socket, several publishers: never two at once, and never a dead one in the way.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use tapecast_control::{BindError, Listener};

use crate::support::{Granting, place, runtime};

#[test]
fn of_listeners_that_start_at_once_exactly_one_wins() {
    const RACERS: usize = 8;
    for _ in 0..20 {
        let place = place();
        let (start, end) = (Barrier::new(RACERS), Barrier::new(RACERS));
        let winners = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..RACERS {
                scope.spawn(|| {
                    let runtime = runtime();
                    let _inside = runtime.enter();
                    start.wait();
                    let bound = Listener::bind(place.options());
                    end.wait();
                    match bound {
                        Ok(_) => drop(winners.fetch_add(1, Ordering::SeqCst)),
                        Err(BindError::Held { pid, .. }) => {
                            assert!(pid.is_none_or(|pid| pid == std::process::id()));
                        }
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        assert_eq!(winners.into_inner(), 1);
        assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn listeners_that_come_and_go_never_hold_the_socket_together() {
    let place = place();
    let (holders, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = runtime();
                let _inside = runtime.enter();
                while rounds.load(Ordering::SeqCst) < 100 {
                    match Listener::bind(place.options()) {
                        Ok(listener) => {
                            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                            assert!(place.socket.exists());
                            rounds.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                            drop(listener);
                        }
                        Err(BindError::Held { .. }) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 0);
}

#[test]
fn a_publisher_that_starts_again_at_once_is_found_again() {
    let place = place();
    for _ in 0..20 {
        let publisher = Granting::start(place.options());
        place.attach().unwrap();
        publisher.stop();
    }
}
