//! A connection at the publisher's end, whatever carries it.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::Shutdown;
use tapecast_wire::attach::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::frame;

/// Bytes that a refused peer may still send before its connection is closed, see [`linger`].
const LINGER_BYTES: usize = 64 * 1024;
/// Time that it has for it.
const LINGER: Duration = Duration::from_secs(1);

/// A connection: over a Unix socket, plain TCP, or TLS over TCP.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Reads at once what is there, and only then asks to be woken: a subscriber sends its request
    /// as it connects, so it is normally there before the connection is accepted. Cancel-safe.
    pub(crate) async fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => {
                let stream = &*stream;
                match frame::receive(stream, piece) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        stream.async_io(Interest::READABLE, || frame::receive(stream, piece)).await
                    }
                    received => received,
                }
            }
            Self::Tcp(stream) => {
                let stream = &*stream;
                match frame::receive(stream, piece) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        stream.async_io(Interest::READABLE, || frame::receive(stream, piece)).await
                    }
                    received => received,
                }
            }
            Self::Tls(stream) => stream.read(piece).await,
        }
    }

    /// Sends all of it. Descriptors go with the first byte, over a Unix socket only.
    pub(crate) async fn send_all(
        &mut self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                let (mut rest, mut beside) = (bytes, descriptors);
                while !rest.is_empty() {
                    let send = || frame::send(&*stream, rest, beside);
                    let sent = stream.async_io(Interest::WRITABLE, send).await?;
                    // They went with the first byte.
                    (rest, beside) = (&rest[sent..], &[]);
                }
                Ok(())
            }
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Sends a short last word without waiting: it fits into the empty buffer of a peer that
    /// reads, and a peer that does not read has no claim to it.
    pub(crate) fn answer_now(&mut self, message: &Message) {
        let Ok(bytes) = message.encode() else { return };
        let _ = match self {
            Self::Unix(stream) => frame::send(&*stream, &bytes, &[]),
            Self::Tcp(stream) => frame::send(&*stream, &bytes, &[]),
            Self::Tls(stream) => {
                let (socket, tls) = stream.get_mut();
                let queued = tls.writer().write(&bytes);
                tls.send_close_notify();
                let mut now = Now(&*socket);
                while tls.wants_write() && matches!(tls.write_tls(&mut now), Ok(1..)) {}
                queued
            }
        };
    }

    /// Sends all of a short message without waiting. `false` when it does not fit: the peer does
    /// not read what it has asked for.
    pub(crate) fn send_now(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let sent = match self {
            Self::Unix(stream) => frame::send(&*stream, bytes, &[]),
            Self::Tcp(stream) => frame::send(&*stream, bytes, &[]),
            Self::Tls(stream) => {
                let (socket, tls) = stream.get_mut();
                tls.writer().write_all(bytes)?;
                let mut now = Now(&*socket);
                let mut written = Ok(bytes.len());
                while tls.wants_write() && written.is_ok() {
                    written = tls.write_tls(&mut now);
                }
                written.map(|_| bytes.len())
            }
        };
        match sent {
            Ok(sent) => Ok(sent == bytes.len()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// [`linger`], where the kernel would otherwise drop the last word.
    pub(crate) async fn linger(self) {
        match self {
            Self::Unix(_) => {}
            Self::Tcp(stream) => linger(stream).await,
            Self::Tls(stream) => linger(stream.into_inner().0).await,
        }
    }

    pub(crate) const fn carries_descriptors(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

/// Lets a refused peer read its refusal. A TCP socket that is closed with unread bytes resets the
/// connection, and a reset may overtake what was sent before it: so the rest is read and thrown
/// away, bounded in bytes and time.
pub(crate) async fn linger(mut stream: TcpStream) {
    let _ = rustix::net::shutdown(&stream, Shutdown::Write);
    let drained = async {
        let (mut piece, mut left) = ([0; frame::PIECE_BYTES], LINGER_BYTES);
        while let Ok(1..) = stream.read(&mut piece).await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, drained).await;
}

/// Writes what fits now.
struct Now<S>(S);

impl<S: AsFd> Write for Now<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        frame::send(&self.0, bytes, &[])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::sockopt::set_socket_send_buffer_size;
    use tokio::net::UnixStream;

    use super::Stream;
    use crate::frame::{PIECE_BYTES, receive_descriptors};

    #[tokio::test]
    async fn an_answer_that_goes_in_many_pieces_carries_its_descriptors_once() {
        const ANSWER_BYTES: usize = 100_000;
        let (near, far) = UnixStream::pair().unwrap();
        set_socket_send_buffer_size(&near, 1).unwrap();
        let mut near = Stream::Unix(near);
        let file = std::fs::File::open("/dev/null").unwrap();
        let sent = async {
            near.send_all(&[7; ANSWER_BYTES], &[file.as_fd(); 3]).await.unwrap();
        };
        let received = async {
            let (mut bytes, mut descriptors, mut pieces) = (0, Vec::new(), 0);
            while bytes < ANSWER_BYTES {
                far.readable().await.unwrap();
                let mut piece = [0; PIECE_BYTES];
                let read = far.try_io(tokio::io::Interest::READABLE, || {
                    receive_descriptors(&far, &mut piece)
                });
                if let Ok(received) = read {
                    bytes += received.len;
                    descriptors.extend(received.descriptors);
                    pieces += 1;
                }
            }
            (bytes, descriptors.len(), pieces)
        };
        let ((), (bytes, descriptors, pieces)) = tokio::join!(sent, received);
        assert_eq!((bytes, descriptors), (ANSWER_BYTES, 3));
        assert!(pieces > 10, "{pieces}");
    }
}
