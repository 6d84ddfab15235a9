//! Sessions inside this process, and peers without manners.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use tapecast_control::client::Granted;
use tapecast_control::{Lifeline, Listener};
use tapecast_wire::attach::{FRAME_HEAD_BYTES, FrameHead, Message};

use crate::support::{Place, accepted, attach};

impl Place {
    pub(crate) fn listener(&self) -> Listener {
        Listener::bind(self.options()).unwrap()
    }
}

/// Runs a blocking step beside the publisher's side of a test.
pub(crate) async fn beside<T: Send + 'static>(step: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(step).await.unwrap()
}

/// Both ends of a granted session.
pub(crate) async fn session(place: &Place, listener: &mut Listener) -> (Lifeline, Granted) {
    let socket = place.socket.clone();
    let subscriber = tokio::task::spawn_blocking(move || attach(&socket).unwrap());
    let lifeline = listener.accept().await.accept(&accepted(), &[]).await.unwrap();
    (lifeline, subscriber.await.unwrap())
}

/// A publisher without manners: `speak` has the first connection, after its request has been read.
pub(crate) fn fake_publisher(
    place: &Place,
    speak: impl FnOnce(UnixStream) + Send + 'static,
) -> JoinHandle<()> {
    let listener = UnixListener::bind(&place.socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(matches!(read_message(&mut stream), Some(Message::Attach(_))));
        speak(stream);
    })
}

/// The next message; none at the end of the connection.
pub(crate) fn read_message(stream: &mut UnixStream) -> Option<Message> {
    let mut head = [0; FRAME_HEAD_BYTES];
    match stream.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
        Err(error) => panic!("{error}"),
    }
    let head = FrameHead::parse(head).unwrap();
    let mut payload = vec![0; head.payload_bytes];
    stream.read_exact(&mut payload).unwrap();
    Some(Message::decode(head, &payload).unwrap())
}

pub(crate) fn write_message(stream: &mut UnixStream, message: &Message) {
    stream.write_all(&message.encode().unwrap()).unwrap();
}

/// A descriptor whose every copy can be waited for: the reader sees the end when all are closed.
pub(crate) fn traced_descriptor() -> (PipeReader, PipeWriter) {
    io::pipe().unwrap()
}

/// Returns when no copy of the descriptor is left in this process.
pub(crate) fn wait_until_closed(mut reader: PipeReader, writer: PipeWriter) {
    drop(writer);
    assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
}

pub(crate) fn file_with(text: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

pub(crate) fn text_of(descriptor: OwnedFd) -> String {
    let (mut file, mut text) = (File::from(descriptor), String::new());
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Sends bytes with copies of one descriptor beside them.
pub(crate) fn send_descriptors(
    stream: &UnixStream,
    bytes: &[u8],
    descriptor: impl AsFd,
    count: usize,
) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = vec![descriptor.as_fd(); count];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(stream, &[io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent.unwrap(), bytes.len());
}
