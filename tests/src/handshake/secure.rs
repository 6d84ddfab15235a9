//! TLS at a client's end: what it says, record by record, and how much of that it lets out.

use std::collections::VecDeque;
use std::io::{Read, Write};

use rustls::ClientConnection;

/// Bytes on their way to the socket, and what they say once the last of them has gone.
struct Record {
    bytes: Vec<u8>,
    gone: usize,
    says: Vec<u8>,
}

/// What may wait for TLS: with more, one piece could be several records, each said by itself.
const EARLY_BYTES_MAX: usize = 8192;

/// A client's TLS. It touches no socket.
pub(super) struct Secure {
    tls: ClientConnection,
    records: VecDeque<Record>,
    /// Said before TLS could carry it.
    early: Vec<u8>,
    /// It has refused what it was sent.
    has_failed: bool,
    /// It has said that nothing follows, and hears nothing either: rustls does not expect an error
    /// afterwards.
    has_closed: bool,
}

impl Secure {
    pub(super) fn new(tls: ClientConnection) -> Self {
        let mut secure = Self {
            tls,
            records: VecDeque::new(),
            early: Vec::new(),
            has_failed: false,
            has_closed: false,
        };
        secure.queue(Vec::new());
        secure
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        let room = EARLY_BYTES_MAX - self.early.len();
        self.early.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.carry();
    }

    /// Takes what the publisher has sent; adds what it says to `heard`.
    pub(super) fn take(&mut self, mut bytes: &[u8], heard: &mut Vec<u8>) {
        while !bytes.is_empty() && !self.has_failed && !self.has_closed {
            if !matches!(self.tls.read_tls(&mut bytes), Ok(1..)) {
                break;
            }
            self.has_failed = self.tls.process_new_packets().is_err();
            let mut piece = [0; 1024];
            while let Ok(len @ 1..) = self.tls.reader().read(&mut piece) {
                heard.extend_from_slice(&piece[..len]);
            }
        }
        self.queue(Vec::new());
        self.carry();
    }

    /// Says that nothing follows.
    pub(super) fn close_notify(&mut self) {
        self.has_closed = true;
        self.tls.send_close_notify();
        self.queue(Vec::new());
    }

    /// Whether the handshake is over at this end, and all that it has to say has gone.
    pub(super) fn has_said_all(&self) -> bool {
        !self.is_handshaking() && self.records.is_empty()
    }

    pub(super) fn is_handshaking(&self) -> bool {
        !self.has_failed && self.tls.is_handshaking()
    }

    /// What is to be sent next.
    pub(super) fn next(&self) -> Option<&[u8]> {
        self.records.front().map(|record| &record.bytes[record.gone..])
    }

    /// Counts as sent; adds what is thereby said whole to `said`.
    pub(super) fn on_sent(&mut self, len: usize, said: &mut Vec<u8>) {
        let Some(record) = self.records.front_mut() else { return };
        record.gone += len;
        if record.gone == record.bytes.len() {
            said.append(&mut record.says);
            self.records.pop_front();
        }
    }

    /// Makes records of what was said, as soon as they can be.
    fn carry(&mut self) {
        if !self.early.is_empty() && !self.tls.is_handshaking() && !self.has_failed {
            let says = std::mem::take(&mut self.early);
            self.tls.writer().write_all(&says).expect("memory takes it");
            self.queue(says);
        }
    }

    fn queue(&mut self, says: Vec<u8>) {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).expect("memory takes it");
        }
        if !bytes.is_empty() {
            self.records.push_back(Record { bytes, gone: 0, says });
        }
    }
}
