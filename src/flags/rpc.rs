//! `--rpc`: llama.cpp's RPC servers, and whether each answers before llama.cpp is told of it, which would end the process
//! over one that does not.

use crate::console::failure::Failure;
use crate::llama::Backend;
use crate::sys::interrupts;
use clap::Args;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// How often an interrupt is looked for.
const MOMENT: Duration = Duration::from_millis(100);

/// Servers that llama.cpp can spread a model over: 16 devices, of which the processor is one.
const MOST: usize = 15;

/// The greeting of llama.cpp's RPC: the command (which never changes), the size of what follows, and no capabilities
/// beyond TCP.
const HELLO: (u8, usize) = (14, 24);

/// Bytes that no answer to the greeting is longer than, in whatever version.
const LONGEST_ANSWER: u64 = 4096;

/// What is said of something that answers otherwise.
const OTHER: &str = "answers, and not as an RPC server of llama.cpp does";

/// Servers to compute on.
#[derive(Args, Clone, Debug, Default)]
pub struct RpcFlags {
    /// Servers of llama.cpp's RPC backend whose devices take part (needs the feature rpc); see docs/rpc.md before you
    /// open a port
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', env = "LLAMA_ARG_RPC", value_parser = server)]
    pub rpc: Vec<RpcServer>,
}

/// An RPC server: a name or an IPv4 address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcServer {
    host: String,
    port: u16,
}

impl fmt::Display for RpcServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for RpcServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.split_once(':').ok_or("expected HOST:PORT")?;
        if port.contains(':') || host.starts_with('[') {
            return Err("llama.cpp's RPC takes names and IPv4 addresses alone".into());
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if host.is_empty() || host.len() > 255 || !host.chars().all(is_name) {
            return Err(format!("expected HOST:PORT, and {host:?} is no host"));
        }
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|&port: &u16| digits && port > 0);
        let port = port.ok_or("expected HOST:PORT, with a port from 1 to 65535")?;
        Ok(RpcServer { host: host.to_owned(), port })
    }
}

fn server(text: &str) -> Result<RpcServer, String> {
    if !cfg!(feature = "rpc") {
        return Err(
            "this moeslice is built without RPC; cargo build --release --features rpc puts it in".into()
        );
    }
    text.parse()
}

impl RpcFlags {
    /// Starts llama.cpp and adds the devices of the servers, each of which has answered by then.
    pub fn start(&self) -> Result<&'static Backend, Failure> {
        for (at, server) in self.rpc.iter().enumerate() {
            if self.rpc[..at].contains(server) {
                return Err(Failure::arguments(format!("--rpc names {server} twice")));
            }
        }
        if self.rpc.len() > MOST {
            let given = self.rpc.len();
            return Err(Failure::arguments(format!(
                "--rpc names {given} servers, and llama.cpp takes {MOST}"
            )));
        }
        // A server takes one client at a time: who has it already does not greet it once more.
        let added = Backend::started().map(Backend::rpc_servers).unwrap_or_default();
        for server in self.rpc.iter().filter(|server| !added.contains(&server.to_string())) {
            server.probe(CONNECT, ANSWER).map_err(|what| match interrupts() {
                0 => Failure::running(anyhow::anyhow!("{server}: {what}")),
                _ => Failure::Interrupted,
            })?;
        }
        let backend = Backend::start().map_err(Failure::running)?;
        for server in &self.rpc {
            backend.add_rpc_server(&server.to_string()).map_err(Failure::running)?;
        }
        Ok(backend)
    }

    /// What may have gone silent besides a device of this machine; nothing without servers.
    pub fn suspects(&self) -> String {
        let names: Vec<String> = self.rpc.iter().map(RpcServer::to_string).collect();
        if names.is_empty() {
            return String::new();
        }
        format!("; one of the RPC servers may have stopped answering ({})", names.join(", "))
    }
}

impl RpcServer {
    /// Fails with words when nothing is there that could be llama.cpp's server, or when it has no time.
    ///
    /// A server has one client at a time, and ends when a client that waits its turn goes away after its greeting. So a
    /// connection without one comes first, which only a server without a client takes.
    fn probe(&self, connect: Duration, answer: Duration) -> Result<(), String> {
        self.knock(connect, answer)?;
        self.greet(connect, answer)
    }

    /// Connects, says nothing, and waits until the other side has seen that.
    fn knock(&self, connect: Duration, answer: Duration) -> Result<(), String> {
        let mut stream = self.connect(connect)?;
        let _ = stream.shutdown(Shutdown::Write);
        match read_within(&mut stream, &mut [0], answer) {
            Ok(0) | Err(Silence::Closed) => Ok(()),
            Ok(_) => Err(OTHER.into()),
            Err(Silence::Open) => Err(format!(
                "takes no client in {} s: an RPC server that serves somebody else (one at a time) or is stopped, or \
                 something that is none",
                answer.as_secs()
            )),
        }
    }

    /// Says hello as llama.cpp does.
    fn greet(&self, connect: Duration, answer: Duration) -> Result<(), String> {
        let mut stream = self.connect(connect)?;
        let (command, size) = HELLO;
        let mut greeting = vec![command];
        greeting.extend((size as u64).to_le_bytes());
        greeting.resize(greeting.len() + size, 0);
        let closed = "closes the connection on llama.cpp's greeting: a tunnel to nobody, an RPC server of another version, or \
             something that is none";
        stream.write_all(&greeting).map_err(|_| closed)?;
        let mut read = |bytes: &mut [u8]| match read_within(&mut stream, bytes, answer) {
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(_) | Err(Silence::Closed) => Err(closed.to_owned()),
            Err(Silence::Open) => {
                Err(format!("does not answer llama.cpp's greeting in {} s", answer.as_secs()))
            }
        };
        let mut size = [0; 8];
        read(&mut size)?;
        let size = u64::from_le_bytes(size);
        if size > LONGEST_ANSWER {
            return Err(OTHER.into());
        }
        // Read to its end: a server that is cut off while it writes would end.
        read(&mut vec![0; size as usize])
    }

    fn connect(&self, limit: Duration) -> Result<TcpStream, String> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found = found.map_err(|error| format!("there is no host {:?}: {error}", self.host))?;
        let address = found.into_iter().find(SocketAddr::is_ipv4);
        let address = address.ok_or_else(|| {
            format!("{:?} has no IPv4 address, and llama.cpp's RPC knows no others", self.host)
        })?;
        TcpStream::connect_timeout(&address, limit)
            .map_err(|error| format!("no RPC server answers there: {error}"))
    }
}

/// Why there was nothing to read.
enum Silence {
    /// The time was up.
    Open,
    /// The connection broke.
    Closed,
}

/// Fills `bytes` as far as the other side gives something, within the time, and until an interrupt; gives how far.
fn read_within(stream: &mut TcpStream, bytes: &mut [u8], limit: Duration) -> Result<usize, Silence> {
    let begin = Instant::now();
    let mut read = 0;
    while read < bytes.len() {
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() || interrupts() > 0 || stream.set_read_timeout(Some(left.min(MOMENT))).is_err() {
            return Err(Silence::Open);
        }
        match stream.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Err(Silence::Closed),
            },
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// What the probe makes of a server that does `answer` with each connection and what was said on it.
    fn probed(answer: impl Fn(TcpStream, &[u8]) + Send + 'static) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server: RpcServer = listener.local_addr().unwrap().to_string().parse().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut said = [0; 33];
                let read = read_within(&mut stream, &mut said, CONNECT).unwrap_or(0);
                answer(stream, &said[..read]);
            }
        });
        server.probe(CONNECT, Duration::from_secs(1))
    }

    /// A server that gives `bytes` as its answer to the greeting.
    fn answered(bytes: &'static [u8]) -> Result<(), String> {
        probed(move |mut stream, said| match said {
            [] => {}
            [14, 24, 0, 0, 0, 0, 0, 0, 0, rest @ ..] if rest.len() == 24 => stream.write_all(bytes).unwrap(),
            other => panic!("{other:?} is no greeting"),
        })
    }

    #[test]
    fn host_and_port_are_taken_apart_and_others_refused() {
        for text in ["127.0.0.1:50052", "gpu-2.example:1", "a_b:65535"] {
            assert_eq!(text.parse::<RpcServer>().unwrap().to_string(), text);
        }
        for text in ["", "host", "host:", ":1", "host:0", "host:65536", "host:+1", "host:1x", "a b:1", "é:1"]
        {
            assert!(text.parse::<RpcServer>().unwrap_err().contains("HOST:PORT"), "{text:?}");
        }
        for text in ["[::1]:50052", "::1", "fe80::1:50052", "http://a:1"] {
            assert!(text.parse::<RpcServer>().is_err(), "{text:?}");
        }
        assert!("[::1]:50052".parse::<RpcServer>().unwrap_err().contains("IPv4"));
    }

    #[test]
    fn server_that_answers_the_greeting_is_taken_and_others_are_told_apart() {
        assert_eq!(answered(&[4, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0]), Ok(()));
        assert!(answered(b"HTTP/1.1 400 Bad Request\r\n").unwrap_err().contains("not as an RPC server"));
        assert!(answered(b"").unwrap_err().contains("closes the connection"));
        assert!(answered(&[28, 0, 0]).unwrap_err().contains("closes the connection"));
        assert!(answered(&[4, 0, 0, 0, 0, 0, 0, 0, 8]).unwrap_err().contains("closes the connection"));
        let first = probed(|mut stream, _| stream.write_all(b"SSH-2.0-x\r\n").unwrap());
        assert!(first.unwrap_err().contains("not as an RPC server"));
        // They hold the connection until the other side gives up.
        let wait = |mut stream: TcpStream| {
            stream.set_read_timeout(None).unwrap();
            let _ = stream.read(&mut [0]);
        };
        let mute = probed(move |stream, said| {
            if !said.is_empty() {
                wait(stream)
            }
        });
        assert!(mute.unwrap_err().contains("does not answer llama.cpp's greeting in 1 s"));
    }

    #[test]
    fn server_with_a_client_is_not_greeted() {
        // The connection waits in the system, as with a server that accepts the next once the last is gone.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server: RpcServer = listener.local_addr().unwrap().to_string().parse().unwrap();
        let refusal = server.probe(CONNECT, Duration::from_millis(200)).unwrap_err();
        assert!(refusal.contains("serves somebody else"), "{refusal}");
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "nothing was said");
    }

    #[test]
    fn nobody_at_the_port_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server: RpcServer = listener.local_addr().unwrap().to_string().parse().unwrap();
        drop(listener);
        assert!(server.probe(CONNECT, ANSWER).unwrap_err().contains("no RPC server answers there"));
    }
}
