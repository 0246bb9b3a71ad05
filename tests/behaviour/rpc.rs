//! `--rpc`: servers that compute, that are not there, that are something else, and that go away. The feature is not part of
//! the default: `scripts/test --all` runs these with it.

use crate::support::{demo, folder, moeslice, refuses};

#[test]
#[cfg(not(feature = "rpc"))]
fn rpc_without_the_feature_says_how_to_build_it() {
    let folder = folder();
    let words = ["--rpc", "built without RPC", "cargo build --release --features rpc"];
    let mut profile = moeslice();
    profile.args(["profile", "--rpc", "127.0.0.1:1", "-m"]).arg(demo()).args(["-f", "t.txt", "-o"]);
    refuses(profile.arg(folder.path().join("u.json")), 2, &words);
    refuses(moeslice().args(["devices", "--rpc", "127.0.0.1:1"]), 2, &words);
    refuses(moeslice().arg("devices").env("LLAMA_ARG_RPC", "127.0.0.1:1"), 2, &words);
}

#[cfg(feature = "rpc")]
mod with_it {
    use super::*;
    use crate::profile::{counts, text};
    use crate::support::{json, repository, succeeds};
    use serde_json::Value;
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::sync::OnceLock;
    use std::thread::{self, sleep};
    use std::time::{Duration, Instant};

    /// One of llama.cpp's own servers, with a thread, on a port of its own.
    struct Server {
        process: Child,
        endpoint: String,
    }

    impl Server {
        fn start() -> Server {
            let endpoint = free_endpoint();
            let (_, port) = endpoint.split_once(':').unwrap();
            let mut command = Command::new(peers().join("ggml-rpc-server"));
            command.args(["-H", "127.0.0.1", "-t", "1", "-p", port]).stdout(Stdio::null());
            let process = command.stderr(Stdio::null()).spawn().expect("the server starts");
            let begin = Instant::now();
            while TcpStream::connect(&endpoint).is_err() {
                assert!(begin.elapsed() < Duration::from_secs(60), "no server at {endpoint}");
                sleep(Duration::from_millis(20));
            }
            Server { process, endpoint }
        }

        fn signal(&self, name: &str) {
            let id = self.process.id().to_string();
            assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
        }

        /// Waits until it has computed for a while.
        fn computes(&self) {
            let ticks = || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
                let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
                fields[11].parse::<u64>().unwrap()
            };
            let (begin, before) = (Instant::now(), ticks());
            while ticks() < before + 30 {
                assert!(begin.elapsed() < Duration::from_secs(120), "the server does not compute");
                sleep(Duration::from_millis(20));
            }
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    /// The folder of llama.cpp's own programs.
    fn peers() -> &'static Path {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        FOLDER.get_or_init(|| {
            let peers = Command::new(repository("scripts/peers")).stderr(Stdio::inherit()).output().unwrap();
            assert!(peers.status.success(), "scripts/peers builds the server");
            PathBuf::from(String::from_utf8(peers.stdout).unwrap().trim())
        })
    }

    fn free_endpoint() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    /// A profile over `servers`; texts and further flags follow.
    fn profile(servers: &str, output: &Path) -> assert_cmd::Command {
        let mut command = moeslice();
        command.args(["profile", "-q", "-t", "1", "-c", "128", "--rpc", servers, "-m"]).arg(demo());
        command.arg("-f").arg(repository("corpora/dev")).arg("-o").arg(output);
        command
    }

    /// A profile over `servers` that runs for long.
    fn long_profile(servers: &str, folder: &Path, more: &[&str]) -> Child {
        fs::write(folder.join("text.txt"), text(usize::MAX).repeat(400)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_moeslice"));
        command
            .args(["profile", "-q", "-t", "1", "-c", "64", "-b", "64", "--rpc", servers, "-m"])
            .arg(demo());
        command.arg("-f").arg(folder.join("text.txt")).arg("-o").arg(folder.join("u.json")).args(more);
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Exit code and the one line on stderr.
    fn end(mut process: Child) -> (Option<i32>, String) {
        let mut line = String::new();
        process.stderr.take().unwrap().read_to_string(&mut line).unwrap();
        assert_eq!(line.lines().count(), 1, "{line}");
        (process.wait().unwrap().code(), line)
    }

    /// Something that does `answer` with each connection and what was said on it.
    fn listens(answer: impl Fn(TcpStream, &[u8]) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                // The greeting is 33 bytes, and whatever is shorter ends with the connection.
                let mut said = Vec::new();
                (&stream).take(33).read_to_end(&mut said).unwrap();
                answer(stream, &said);
            }
        });
        endpoint
    }

    #[test]
    fn wrong_servers_are_wrong_arguments() {
        let folder = folder();
        let refused = |servers: &str, words: &[&str]| {
            refuses(&mut profile(servers, &folder.path().join("u.json")), 2, words);
        };
        refused("127.0.0.1", &["--rpc", "HOST:PORT"]);
        refused("127.0.0.1:1,", &["--rpc", "HOST:PORT"]);
        refused("127.0.0.1:65536", &["--rpc", "65535"]);
        refused("[::1]:50052", &["--rpc", "IPv4"]);
        refused("127.0.0.1:1,127.0.0.1:1", &["--rpc", "127.0.0.1:1 twice"]);
        let many: Vec<String> = (1..=16).map(|port| format!("127.0.0.1:{port}")).collect();
        refused(&many.join(","), &["--rpc", "16 servers", "15"]);
    }

    #[test]
    fn nobody_at_the_port_is_one_error_that_names_it() {
        let (folder, nobody) = (folder(), free_endpoint());
        let words = [nobody.as_str(), "no RPC server answers there"];
        refuses(&mut profile(&nobody, &folder.path().join("u.json")), 1, &words);
        refuses(moeslice().args(["devices", "--rpc", &nobody]), 1, &words);
        refuses(moeslice().arg("devices").env("LLAMA_ARG_RPC", &nobody), 1, &words);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn servers_are_left_alone_when_the_processor_computes() {
        let folder = folder();
        let mut command = profile(&free_endpoint(), &folder.path().join("u.json"));
        succeeds(command.args(["-dev", "none", "--chunks", "2"]));
        assert_eq!(json(&folder.path().join("u.json"))["run"]["devices"], serde_json::json!(["CPU"]));
    }

    #[test]
    fn http_server_is_no_rpc_server() {
        let endpoint = listens(|mut stream, said| {
            if !said.is_empty() {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").unwrap();
            }
        });
        refuses(
            moeslice().args(["devices", "--rpc", &endpoint]),
            1,
            &[&endpoint, "not as an RPC server of llama.cpp"],
        );
    }

    #[test]
    fn wait_for_a_server_with_a_client_can_be_interrupted() {
        let folder = folder();
        // The system takes the connection, and nobody does anything with it.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_moeslice"), "profile", "-q"]);
        command.args(["--rpc", &endpoint, "-m"]).arg(demo()).arg("-f").arg(repository("corpora/dev"));
        let process =
            command.arg("-o").arg(folder.path().join("u.json")).stderr(Stdio::piped()).spawn().unwrap();
        let (_waiting, _) = listener.accept().unwrap();
        let id = process.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        let (code, line) = end(process);
        assert_eq!(code, Some(130), "{line}");
        assert!(line.contains("interrupted, nothing was written"), "the child itself has heard it: {line}");
    }

    #[test]
    fn server_of_another_version_is_named_with_its_version() {
        let endpoint = listens(|mut stream, said| {
            if !said.is_empty() {
                let mut answer = [0; 8 + 28];
                (answer[0], answer[8], answer[9], answer[10]) = (28, 7, 1, 3);
                stream.write_all(&answer).unwrap();
            }
        });
        let words = [&endpoint, "RPC server version mismatch: 7.1.3", "handshake failed"];
        refuses(moeslice().args(["devices", "--rpc", &endpoint]), 1, &words);
        let folder = folder();
        refuses(&mut profile(&endpoint, &folder.path().join("u.json")), 1, &words);
    }

    #[test]
    #[ignore = "builds ggml-rpc-server: run with scripts/test --all"]
    fn two_servers_give_the_counts_of_the_processor() {
        let (folder, one, two) = (folder(), Server::start(), Server::start());
        let at = |name: &str| folder.path().join(name);
        let servers = format!("{},{}", one.endpoint, two.endpoint);

        let listed = succeeds(moeslice().args(["devices", "--json", "--rpc", &servers]));
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let remote: Vec<&Value> =
            listed["rows"].as_array().unwrap().iter().filter(|row| row["remote"] == true).collect();
        assert_eq!(remote.len(), 2, "{listed}");
        for (row, server) in remote.iter().zip([&one, &two]) {
            assert_eq!(row["description"], server.endpoint.as_str());
            assert!(row["memory_free"].as_u64().unwrap() > 0, "{row}");
        }

        // Windows apart, as on the processor: several in an ubatch would decide a near-tie here and there the other way.
        let run = |flags: &[&str], output: &str| {
            succeeds(profile(&servers, &at(output)).args(["-kvu", "off", "-dev"]).args(flags));
        };
        run(&["none"], "cpu.json");
        // The servers alone: in a build with other backends, their devices would take layers, too.
        run(&["RPC0,RPC1"], "rpc.json");
        let (cpu, rpc) = (json(&at("cpu.json")), json(&at("rpc.json")));
        assert_eq!(rpc["run"]["devices"], serde_json::json!(["RPC0", "RPC1"]));
        assert_eq!(cpu["corpora"][0]["tokens"], rpc["corpora"][0]["tokens"]);
        for layer in 0..4 {
            assert_eq!(counts(&cpu, layer, ""), counts(&rpc, layer, ""), "layer {layer}");
        }

        let mut command = moeslice();
        command.args(["profile", "-v", "-t", "1", "--chunks", "1", "--rpc", &servers, "-m"]).arg(demo());
        command.arg("-f").arg(repository("corpora/dev")).arg("-o").arg(at("log.json"));
        let log = String::from_utf8(command.output().unwrap().stderr).unwrap();
        for server in [&one, &two] {
            let weights = format!("[{}] model buffer size", server.endpoint);
            assert!(log.contains(&weights), "{weights:?} is missing in {log}");
        }
    }

    #[test]
    #[ignore = "builds ggml-rpc-server: run with scripts/test --all"]
    fn server_that_dies_is_one_error_that_names_it() {
        let (folder, one, two) = (folder(), Server::start(), Server::start());
        let process = long_profile(&format!("{},{}", one.endpoint, two.endpoint), folder.path(), &[]);
        two.computes();
        two.signal("KILL");
        let (code, line) = end(process);
        assert_eq!(code, Some(1), "{line}");
        assert!(line.contains("gave up on an RPC server"), "{line}");
        assert!(line.contains(&format!("{}, which is gone", two.endpoint)), "{line}");
        assert!(!line.contains(&format!("{}, which is gone", one.endpoint)), "{line}");
        assert!(!folder.path().join("u.json").exists());
    }

    /// A way to `server` that breaks once so many bytes went there.
    fn breaks_after(server: &str, bytes: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (endpoint, server) = (listener.local_addr().unwrap().to_string(), server.to_owned());
        thread::spawn(move || {
            let mut left = bytes;
            while left > 0 {
                let (mut client, _) = listener.accept().unwrap();
                let mut server = TcpStream::connect(&server).unwrap();
                let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                let mut buffer = vec![0; 1 << 16];
                while let Ok(read @ 1..) = client.read(&mut buffer) {
                    left = left.saturating_sub(read);
                    if left == 0 || server.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(Shutdown::Write);
            }
        });
        endpoint
    }

    #[test]
    #[ignore = "builds ggml-rpc-server: run with scripts/test --all"]
    fn server_that_is_lost_while_the_model_loads_is_no_fault_of_the_file() {
        let (folder, one) = (folder(), Server::start());
        // Half of the weights.
        let way = breaks_after(&one.endpoint, 2_000_000);
        let words = ["gave up on an RPC server", &format!("{way}, which is gone")];
        refuses(&mut profile(&way, &folder.path().join("u.json")), 1, &words);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    #[ignore = "builds ggml-rpc-server: run with scripts/test --all"]
    fn server_that_stops_answering_is_a_stall_that_names_it() {
        let (folder, one) = (folder(), Server::start());
        let process = long_profile(&one.endpoint, folder.path(), &["--stall-timeout", "5"]);
        one.computes();
        one.signal("STOP");
        let (code, line) = end(process);
        assert_eq!(code, Some(4), "{line}");
        assert!(line.contains("nothing has gone on for") && line.contains("profiling"), "{line}");
        assert!(line.contains("may have stopped answering") && line.contains(&one.endpoint), "{line}");
        assert!(!folder.path().join("u.json").exists());
    }

    #[test]
    #[ignore = "builds ggml-rpc-server: run with scripts/test --all"]
    fn server_with_a_client_is_told_and_goes_on_with_it() {
        let (folder, one) = (folder(), Server::start());
        let mut first = long_profile(&one.endpoint, folder.path(), &[]);
        one.computes();
        let words = [one.endpoint.as_str(), "serves somebody else"];
        refuses(moeslice().args(["devices", "--rpc", &one.endpoint]), 1, &words);
        one.computes();
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(succeeds(moeslice().args(["devices", "--rpc", &one.endpoint])).contains(&one.endpoint));
    }
}
