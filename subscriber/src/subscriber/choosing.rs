//! Another choice of instruments while attached.

use tapecast_wire::InstrumentId;

use crate::error::WatchError;

use super::Subscriber;

impl Subscriber {
    /// Begins to receive more instruments, by symbol as the venue writes it: the newest snapshot of
    /// each comes at once, marked as an initial image, and all that follow. Those that are received
    /// already are left as they are. The choice holds for all sessions that follow.
    ///
    /// Over RDMA the publisher sends only what this client is entitled to, and says nothing about
    /// the rest.
    ///
    /// # Errors
    /// [`WatchError::Unknown`] for a symbol that the publisher does not know, unless
    /// [`crate::SubscriberBuilder::allow_unknown_symbols`] was chosen; then nothing has changed.
    pub fn watch<S: AsRef<str>>(
        &mut self,
        symbols: impl IntoIterator<Item = S>,
    ) -> Result<(), WatchError> {
        let symbols = owned(symbols);
        self.read_directory();
        if !self.choices.allow_unknown_symbols {
            self.check_known(&symbols)?;
        }
        self.dropped.retain(|dropped| !symbols.contains(dropped));
        for symbol in symbols {
            match self.directory.find(&symbol).map(|entry| entry.instrument_id) {
                Some(id) => {
                    self.receiver.watch(id);
                }
                None if !self.unresolved.contains(&symbol) => {
                    self.unresolved.push(symbol.clone());
                }
                None => {}
            }
            let wants_all = self.choices.symbols.is_empty();
            if !wants_all && !self.choices.symbols.contains(&symbol) {
                self.choices.symbols.push(symbol);
            }
        }
        self.keeper.choose(&self.choices.symbols);
        // Whoever waits on the descriptor has something to poll now.
        self.rearm();
        Ok(())
    }

    /// Stops receiving instruments. What is on its way of them is not delivered any more; over
    /// RDMA the publisher stops sending them. The choice holds for all sessions that follow, of
    /// which the first snapshots may still bring some, when all instruments were asked for.
    ///
    /// # Errors
    /// [`WatchError::Unknown`] for a symbol that the publisher does not know, and
    /// [`WatchError::NothingLeft`] when none of the symbols that were asked for would be left; then
    /// nothing has changed.
    pub fn unwatch<S: AsRef<str>>(
        &mut self,
        symbols: impl IntoIterator<Item = S>,
    ) -> Result<(), WatchError> {
        let symbols = owned(symbols);
        self.read_directory();
        let wants_all = self.choices.symbols.is_empty();
        let left = |symbol: &&String| !symbols.contains(symbol);
        self.check_known(&symbols)?;
        if !wants_all && self.choices.symbols.iter().filter(left).count() == 0 {
            return Err(WatchError::NothingLeft);
        }
        self.choices.symbols.retain(|symbol| !symbols.contains(symbol));
        self.unresolved.retain(|symbol| !symbols.contains(symbol));
        for symbol in symbols {
            if !self.dropped.contains(&symbol) {
                self.dropped.push(symbol);
            }
        }
        self.drop_unwanted();
        self.keeper.choose(&self.choices.symbols);
        Ok(())
    }

    /// Asks for the newest snapshot of one instrument once more, as after the loss of an own copy.
    /// It comes also when it has been delivered before: then it is marked as an initial image, and
    /// counts once more as published and as delivered.
    ///
    /// # Errors
    /// [`WatchError::Unknown`] for a symbol that the publisher does not know or that is not
    /// received.
    pub fn refresh(&mut self, symbol: &str) -> Result<(), WatchError> {
        self.read_directory();
        let id = self.directory.find(symbol).map(|entry| entry.instrument_id);
        match id.is_some_and(|id| self.receiver.refresh(id)) {
            true => {
                self.rearm();
                Ok(())
            }
            false => Err(WatchError::Unknown { symbol: symbol.to_owned() }),
        }
    }

    /// As [`Subscriber::refresh`], for every instrument that is received.
    pub fn refresh_all(&mut self) {
        self.read_directory();
        for index in 0..self.directory.all().len() {
            self.receiver.refresh(InstrumentId(index as u32));
        }
        self.rearm();
    }

    fn check_known(&self, symbols: &[String]) -> Result<(), WatchError> {
        let known = |symbol: &&String| {
            self.directory.find(symbol).is_some() || self.choices.symbols.contains(symbol)
        };
        match symbols.iter().find(|symbol| !known(symbol)) {
            None => Ok(()),
            Some(symbol) => Err(WatchError::Unknown { symbol: symbol.clone() }),
        }
    }

    /// Drops what has been dropped before, in a session that does not know it yet.
    pub(super) fn drop_unwanted(&mut self) {
        let Self { dropped, directory, receiver, .. } = self;
        for entry in dropped.iter().filter_map(|symbol| directory.find(symbol)) {
            receiver.unwatch(entry.instrument_id);
        }
    }
}

fn owned<S: AsRef<str>>(symbols: impl IntoIterator<Item = S>) -> Vec<String> {
    symbols.into_iter().map(|symbol| symbol.as_ref().to_owned()).collect()
}
