//! Any sequence of steps, on any fabric: every promise holds together.

use tapecast_core::Interest;
use tapecast_wire::InstrumentId;
use tapecast_wire::attach::Policy;

use super::{Harness, Market, Settings};

/// One step of a schedule. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub enum Step {
    /// One more instrument, while there is room.
    Announce,
    /// So many snapshots of one instrument, as one batch or cut short by a gate.
    Publish {
        /// The instrument.
        instrument: u32,
        /// How many.
        count: u32,
    },
    /// The end of a batch.
    Turn,
    /// One more subscriber, while there are few.
    Attach {
        /// Whether the publisher waits for it.
        lossless: bool,
        /// Instruments that it asks for; all when empty.
        only: Vec<u32>,
    },
    /// One subscriber leaves.
    Detach(usize),
    /// One subscriber stops polling, or goes on.
    Toggle(usize),
    /// Everything comes to rest.
    Settle,
}

/// Subscribers at once.
const SUBSCRIBERS_MAX: usize = 6;

/// Plays a schedule, comes to rest and checks the books.
pub fn run<H: Harness>(seed: u64, steps: &[Step]) {
    let settings = Settings { instruments: 8, seed, ..Settings::default() };
    let mut market = Market::<H>::start(&settings);
    for step in steps {
        play(&mut market, step);
    }
    for subscriber in &mut market.subscribers {
        subscriber.stopped = false;
    }
    market.settle();
    market.check_books();
    market.drop_page();
    assert_eq!(market.pool.free_pages(), market.pool.pages());
}

fn play<H: Harness>(market: &mut Market<H>, step: &Step) {
    let instruments = market.instruments().count() as u32;
    let subscribers = market.subscribers.len();
    match step {
        Step::Announce if instruments < 8 => {
            market.announce();
        }
        Step::Publish { instrument, count } if instruments > 0 => {
            for _ in 0..*count {
                if market.try_publish(InstrumentId(instrument % instruments)).is_err() {
                    break;
                }
            }
        }
        Step::Turn => {
            market.turn();
        }
        Step::Attach { lossless, only } if subscribers < SUBSCRIBERS_MAX => {
            let policy = if *lossless { Policy::Lossless } else { Policy::Conflate };
            let ids = only.iter().map(|id| InstrumentId(id % 8));
            let interest =
                if only.is_empty() { Interest::All } else { Interest::Only(ids.collect()) };
            market.attach(policy, &interest);
        }
        Step::Detach(index) if subscribers > 0 => {
            market.detach(index % subscribers);
        }
        Step::Toggle(index) if subscribers > 0 => {
            let subscriber = &mut market.subscribers[index % subscribers];
            subscriber.stopped = !subscriber.stopped;
        }
        Step::Settle => market.settle(),
        Step::Announce
        | Step::Publish { .. }
        | Step::Attach { .. }
        | Step::Detach(_)
        | Step::Toggle(_) => {}
    }
}
