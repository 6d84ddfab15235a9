//! A connection at the subscriber's end, whatever carries it. Never blocks.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustls::ClientConnection;

use crate::frame::{self, Received};

/// Reads of the socket in one call, so that a publisher that sends nothing but TLS records
/// without content does not keep the caller.
const READS_MAX: usize = 64;

/// A connection: bare (a Unix socket, or plain TCP), or TLS over TCP.
#[derive(Debug)]
pub(super) enum Channel {
    Bare(OwnedFd),
    Tls(Box<TlsChannel>),
}

/// TLS over a TCP socket.
#[derive(Debug)]
pub(super) struct TlsChannel {
    socket: OwnedFd,
    tls: ClientConnection,
}

impl Channel {
    pub(super) fn tls(socket: OwnedFd, tls: ClientConnection) -> Self {
        Self::Tls(Box::new(TlsChannel { socket, tls }))
    }

    /// Takes bytes to send, as many as fit. What TLS has taken may need [`Channel::flush`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Bare(socket) => frame::send(&*socket, bytes, &[]),
            Self::Tls(channel) => channel.tls.writer().write(bytes),
        }
    }

    /// Sends what TLS has to say. `WouldBlock` where not all of it went.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Bare(_) => Ok(()),
            Self::Tls(channel) => channel.flush(),
        }
    }

    /// Reads what is there; nothing at the end. Descriptors come over a Unix socket only.
    pub(super) fn receive(&mut self, piece: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Bare(socket) => frame::receive_descriptors(&*socket, piece),
            Self::Tls(channel) => {
                let len = channel.receive(piece)?;
                Ok(Received { len, descriptors: Vec::new(), cut: false })
            }
        }
    }

    /// Reads what is there; nothing at the end. The kernel closes descriptors that come along.
    pub(super) fn receive_bytes(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bare(socket) => frame::receive(&*socket, piece),
            Self::Tls(channel) => channel.receive(piece),
        }
    }

    /// Whether the TLS handshake goes on.
    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(channel) if channel.tls.is_handshaking())
    }

    /// Whether the handshake waits to write, rather than to read.
    pub(super) fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(channel) if channel.tls.wants_write())
    }

    /// One step of the TLS handshake.
    pub(super) fn handshake(&mut self) -> io::Result<()> {
        match self {
            Self::Bare(_) => Ok(()),
            Self::Tls(channel) => {
                channel.flush()?;
                if channel.tls.is_handshaking() {
                    channel.read_socket()?;
                }
                channel.flush()
            }
        }
    }

    /// Says that nothing more follows. Best effort.
    pub(super) fn finish(&mut self) {
        if let Self::Tls(channel) = self {
            channel.tls.send_close_notify();
            let _ = channel.flush();
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Bare(socket) => socket.as_fd(),
            Self::Tls(channel) => channel.socket.as_fd(),
        }
    }
}

impl TlsChannel {
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut Now(&self.socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn receive(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        for _ in 0..READS_MAX {
            // What has been decrypted comes first: the socket does not tell of it.
            match self.tls.reader().read(piece) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Cut off without TLS's own word: the end all the same.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            self.read_socket()?;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Reads the socket once, and says what TLS answers to it, e.g. an alert.
    fn read_socket(&mut self) -> io::Result<()> {
        if self.tls.read_tls(&mut Now(&self.socket))? == 0 && self.tls.is_handshaking() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let processed = self.tls.process_new_packets();
        let flushed = self.flush();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match flushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                // The publisher is closing; what it said before can still be read.
                tracing::debug!(%error, "an answer of TLS was not sent");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The socket without waiting.
struct Now<'a>(&'a OwnedFd);

impl Read for Now<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        frame::receive(self.0, piece)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        frame::send(self.0, bytes, &[])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
