//! Clients without manners: each costs one bounded place for at most the handshake's time.

use std::io::Write as _;

use tapecast_control::{ListenerStats, TcpListener, TcpListenerOptions};
use tapecast_wire::WIRE_VERSION;
use tapecast_wire::attach::{Message, Refusal};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::place::{
    Certificates, SHORT, bare, beside, both, options, read_message, read_to_end, request, session,
    target, write_message,
};

#[tokio::test]
async fn a_silent_client_is_closed_when_its_time_is_over() {
    let certificates = Certificates::new();
    for tls in [None, Some(certificates.identity())] {
        let is_plain = tls.is_none();
        let options = TcpListenerOptions { tls, handshake_timeout: SHORT, ..options() };
        let listener = TcpListener::bind(options).unwrap();
        let mut stream = bare(listener.local_address());
        let told = beside(move || read_message(&mut stream)).await;
        // Before TLS there is no way to say so.
        assert_eq!(matches!(told, Some(Message::Refused(Refusal::Malformed, _))), is_plain);
        let expected = ListenerStats { connections: 1, timed_out: 1, ..ListenerStats::default() };
        assert_eq!(listener.stats(), expected);
    }
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_is_closed_when_its_time_is_over() {
    let certificates = Certificates::new();
    let frame = Message::Attach(request()).encode().unwrap();
    // A frame without its end; a TLS record without its content.
    let cases = [(None, &frame[..20]), (Some(certificates.identity()), &[0x16, 3, 1, 2, 0][..])];
    for (tls, begun) in cases {
        let options = TcpListenerOptions { tls, handshake_timeout: SHORT, ..options() };
        let listener = TcpListener::bind(options).unwrap();
        let mut stream = bare(listener.local_address());
        stream.write_all(begun).unwrap();
        beside(move || read_to_end(&mut stream)).await;
        assert_eq!(listener.stats().timed_out, 1);
    }
}

#[tokio::test]
async fn garbage_is_refused_and_others_are_served() {
    for (mut listener, target) in both() {
        let mut stream = bare(listener.local_address());
        stream.write_all(&[0x16; 4096]).unwrap();
        beside(move || read_to_end(&mut stream)).await;
        let stats = listener.stats();
        assert_eq!((stats.connections, stats.malformed + stats.tls_other), (1, 1), "{stats:?}");
        session(&mut listener, &target).await;
    }
}

#[tokio::test]
async fn a_gigabyte_is_refused_by_its_head_and_not_read() {
    for (mut listener, target) in both() {
        let mut stream = bare(listener.local_address());
        let sent = beside(move || {
            let mut head = (1u32 << 30).to_le_bytes().to_vec();
            head.extend(1u16.to_le_bytes());
            head.extend(WIRE_VERSION.to_le_bytes());
            stream.write_all(&head).unwrap();
            let (piece, mut sent) = (vec![0; 64 * 1024], 0u64);
            while sent < 1 << 30 && stream.write_all(&piece).is_ok() {
                sent += piece.len() as u64;
            }
            sent
        });
        let sent = sent.await;
        // What went is what fits into the buffers of both sockets, and what is read to be polite.
        assert!(sent < 1 << 28, "{sent}");
        session(&mut listener, &target).await;
    }
}

#[tokio::test]
async fn one_address_crowds_out_its_own_half_open_connections() {
    let options = TcpListenerOptions { half_open_per_address_max: 2, ..options() };
    let mut listener = TcpListener::bind(options).unwrap();
    let address = listener.local_address();
    let mut silent = [bare(address), bare(address), bare(address)];
    let [first, ..] = &mut silent;
    let mut first = first.try_clone().unwrap();
    let told = beside(move || read_message(&mut first)).await;
    assert!(matches!(told, Some(Message::Refused(Refusal::Resources, _))), "{told:?}");
    assert_eq!(listener.stats().crowded_out, 1);
    // It is crowded, not locked out.
    let target = target(&listener);
    session(&mut listener, &target).await;
}

#[tokio::test]
async fn a_flood_from_one_address_is_paid_for_by_that_address() {
    let options = TcpListenerOptions { half_open_max: 3, ..options() };
    let mut listener = TcpListener::bind(options).unwrap();
    let address = listener.local_address();
    let other = TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = other.connect(address).await.unwrap();
    let flood: Vec<_> = (0..6).map(|_| bare(address)).collect();
    while listener.stats().crowded_out < 4 {
        tokio::task::yield_now().await;
    }
    let frame = Message::Attach(request()).encode().unwrap();
    other.write_all(&frame).await.unwrap();
    let pending = listener.accept().await;
    assert_eq!(pending.peer().address(), Some(other.local_addr().unwrap()));
    drop(flood);
}

#[tokio::test]
async fn a_number_that_cannot_be_is_refused_before_anybody_acts_on_it() {
    let listener = TcpListener::bind(options()).unwrap();
    let mut stream = bare(listener.local_address());
    let mut frame = Message::Attach(request()).encode().unwrap();
    let depth = frame.len() - 4;
    frame[depth..].fill(0xff);
    stream.write_all(&frame).unwrap();
    let told = beside(move || read_message(&mut stream)).await;
    let Some(Message::Refused(Refusal::Malformed, reason)) = told else { panic!("{told:?}") };
    assert!(reason.contains("receive_depth"), "{reason}");
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let listener = TcpListener::bind(options()).unwrap();
    let mut stream = bare(listener.local_address());
    write_message(&mut stream, &Message::Ready);
    let told = beside(move || read_message(&mut stream)).await;
    assert!(matches!(told, Some(Message::Refused(Refusal::Malformed, _))), "{told:?}");
}
