//! llama.cpp's RPC servers: devices of other machines, over the network.
//!
//! llama.cpp ends the process when it cannot reach a server or loses it, and waits for an answer without a limit.

use super::error::LlamaError;
use super::{ERROR_BYTES, ffi, log, message};
use std::ffi::CString;
use std::io::{ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The servers whose devices were added.
static SERVERS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How long servers are tried once one may be lost.
const RETRY: Duration = Duration::from_millis(500);

/// As `Backend::add_rpc_server`.
pub(super) fn add(endpoint: &str) -> Result<(), LlamaError> {
    let Ok(mut servers) = SERVERS.lock() else { return Ok(()) };
    if servers.iter().any(|known| known == endpoint) {
        return Ok(());
    }
    let raw =
        CString::new(endpoint).map_err(|_| LlamaError::Nul { what: format!("the server {endpoint:?}") })?;
    // What `lost` tells, should the process end in the call.
    servers.push(endpoint.to_owned());
    drop(servers);
    log::clear();
    let failed = |what: String| LlamaError::Rpc { server: endpoint.to_owned(), what };
    let mut error = [0; ERROR_BYTES];
    // SAFETY: a NUL-terminated string and a buffer of the given size, both alive during the call.
    let n_devices = unsafe { ffi::moeslice_add_rpc_server(raw.as_ptr(), error.as_mut_ptr(), error.len()) };
    if n_devices > 0 {
        return Ok(());
    }
    if let Ok(mut servers) = SERVERS.lock() {
        servers.retain(|known| known != endpoint);
    }
    Err(failed(if n_devices == 0 { "the RPC server offers no devices".into() } else { message(&error) }))
}

/// The servers whose devices were added.
pub(super) fn servers() -> Vec<String> {
    SERVERS.lock().map(|servers| servers.clone()).unwrap_or_default()
}

/// What to say when ggml gives up with `reason`, if that is because of an RPC server.
pub(super) fn lost(reason: &str) -> Option<String> {
    // File, line, reason.
    let (_, place) = reason.split_once("ggml-rpc.cpp:")?;
    let reason = place.split_once(": ").map_or(place, |(_, reason)| reason);
    // Not waited for: the thread that holds the lock may be the one that ends here.
    let servers = SERVERS.try_lock().map(|servers| servers.clone()).unwrap_or_default();
    let connections: Vec<Option<TcpStream>> = servers.iter().map(|server| connected(server)).collect();
    let until = Instant::now() + RETRY;
    let servers: Vec<String> = servers
        .into_iter()
        .zip(connections)
        .map(|(server, connection)| match connection {
            Some(connection) if stays(&connection, until) => server,
            _ => format!("{server}, which is gone"),
        })
        .collect();
    let said: Vec<String> = log::tail("").0.into_iter().filter(|line| line.contains("RPC")).collect();
    let said = if said.is_empty() { String::new() } else { format!("; it said: {}", said.join(" | ")) };
    let servers = servers.join("; ");
    Some(format!("llama.cpp gave up on an RPC server ({servers}): {reason}{said}"))
}

fn connected(server: &str) -> Option<TcpStream> {
    let address = server.to_socket_addrs().ok()?.next()?;
    TcpStream::connect_timeout(&address, RETRY).ok()
}

/// Whether a connection is still open then: the system takes connections for a process that is just ending, and resets them.
fn stays(mut connection: &TcpStream, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let _ = connection.set_read_timeout(Some(left));
    let waited = |error: std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    connection.read(&mut [0]).is_err_and(waited)
}
