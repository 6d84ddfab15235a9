//! When the publisher is ready, and when it is so again after a reload.

/// Keeps `READY=1` for a publisher that is ready: a configuration that is read again during the
/// start is no news, and its end does not say that the sender runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    is_ready: bool,
    /// Whether a reload was announced and is not over.
    reloads: bool,
}

impl Readiness {
    /// Whether to say that the publisher is ready, which it is with the sender's first duty cycle.
    pub(super) const fn on_look(&mut self, sender_beats: u64) -> bool {
        let is_news = !self.is_ready && sender_beats > 0;
        self.is_ready |= is_news;
        is_news
    }

    /// Whether to announce a reload.
    pub(super) const fn on_reload(&mut self) -> bool {
        self.reloads = self.is_ready;
        self.is_ready
    }

    /// Whether to say that it is over.
    pub(super) const fn on_reloaded(&mut self) -> bool {
        std::mem::replace(&mut self.reloads, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_once_with_the_first_duty_cycle() {
        let mut readiness = Readiness::default();
        assert_eq!([0, 1, 2].map(|beats| readiness.on_look(beats)), [false, true, false]);
    }

    #[test]
    fn a_reload_of_one_that_is_ready_is_announced_and_over() {
        let mut readiness = Readiness::default();
        readiness.on_look(1);
        assert!(readiness.on_reload());
        assert!(readiness.on_reloaded());
        assert!(!readiness.on_reloaded(), "once");
    }

    #[test]
    fn a_reload_during_the_start_does_not_make_it_ready() {
        let mut readiness = Readiness::default();
        assert!(!readiness.on_reload());
        assert!(!readiness.on_reloaded());
        assert!(!readiness.on_look(0));
        assert!(readiness.on_look(1), "the sender does");
    }

    #[test]
    fn a_reload_that_began_before_it_was_ready_ends_without_a_word() {
        let mut readiness = Readiness::default();
        assert!(!readiness.on_reload());
        assert!(readiness.on_look(1));
        assert!(!readiness.on_reloaded());
    }
}
