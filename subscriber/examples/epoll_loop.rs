//! A subscription in an event loop of your own, beside other descriptors.
//!
//! ```text
//! cargo run --example epoll_loop -- AAPL        (type a line and press return; ctrl-D ends it)
//! ```
//!
//! One descriptor stands for the whole subscription, over all reconnects: register it once,
//! level-triggered, and poll when it is readable.

use std::error::Error;
use std::io::{self, BufRead};
use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tapecast_subscriber::{PollError, Subscriber, WaitStrategy};

const SNAPSHOTS: u64 = 1;
const KEYBOARD: u64 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let symbols = std::env::args().skip(1);
    let mut subscriber = Subscriber::builder().symbols(symbols).wait(WaitStrategy::Fd).connect()?;

    let set = epoll::create(CreateFlags::CLOEXEC)?;
    let descriptor = subscriber.as_fd().ok_or("WaitStrategy::Fd gives a descriptor")?;
    epoll::add(&set, descriptor, EventData::new_u64(SNAPSHOTS), EventFlags::IN)?;
    let keyboard = io::stdin();
    // A plain file cannot be waited for; then there are only snapshots.
    let _ = epoll::add(&set, keyboard.as_fd(), EventData::new_u64(KEYBOARD), EventFlags::IN);

    let mut delivered = 0_usize;
    let mut ready = Vec::with_capacity(2);
    loop {
        ready.clear();
        epoll::wait(&set, spare_capacity(&mut ready), None)?;
        for event in &ready {
            if event.data.u64() == KEYBOARD {
                let mut line = String::new();
                if keyboard.lock().read_line(&mut line)? == 0 {
                    return Ok(());
                }
                println!("{delivered} snapshots so far; you typed {:?}", line.trim());
                continue;
            }
            match subscriber.poll(|_snapshot| {}) {
                Ok(count) => delivered += count,
                Err(PollError::Ended(reason)) => {
                    println!("{delivered} snapshots; {reason}");
                    return Ok(());
                }
                Err(error) => eprintln!("{error}"),
            }
            for event in subscriber.events() {
                eprintln!("{event}");
            }
        }
    }
}
