//! TCP connections that carry few words and must notice the end of the other host.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
    set_tcp_user_timeout,
};

/// Silence after which the other host is asked whether it is there.
const IDLE: Duration = Duration::from_secs(4);
/// Time between questions.
const INTERVAL: Duration = Duration::from_secs(2);
/// Questions without an answer after which it is gone: 4 + 3 × 2 = 10 s.
const PROBES: u32 = 3;
/// Milliseconds that bytes may be unacknowledged.
const USER_TIMEOUT_MS: u32 = 10_000;

/// Sets a connection up so that a vanished host is noticed within about ten seconds, whether or
/// not something was on its way, and small messages leave at once.
pub(crate) fn set(socket: impl AsFd) -> Result<(), Errno> {
    set_tcp_nodelay(&socket, true)?;
    set_tcp_keepidle(&socket, IDLE)?;
    set_tcp_keepintvl(&socket, INTERVAL)?;
    set_tcp_keepcnt(&socket, PROBES)?;
    set_socket_keepalive(&socket, true)?;
    set_tcp_user_timeout(&socket, USER_TIMEOUT_MS)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use rustix::net::sockopt;

    #[test]
    fn a_vanished_host_is_noticed_within_about_ten_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        super::set(&stream).unwrap();
        assert!(sockopt::tcp_nodelay(&stream).unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 10_000);
        let silence = sockopt::tcp_keepidle(&stream).unwrap()
            + sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        assert_eq!(silence, Duration::from_secs(10));
    }
}
