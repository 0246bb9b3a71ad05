//! Chromium, driven over the two pipes of its DevTools protocol: messages are JSON, each ended by a zero byte.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// The names that the browser goes by.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser.
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().expect("a temporary folder");
        let name = NAMES.into_iter().find(|name| is_installed(name));
        let name = name.expect("these tests need chromium: scripts/setup --all installs it");
        // The protocol is spoken on descriptors 3 and 4, which a shell makes of the ordinary two.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null", "sh", name])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut browser = Browser {
            child,
            to,
            from: BufReader::new(from),
            session: None,
            calls: 0,
            events: vec![],
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file in a window of this width and theme, and waits until it is loaded.
    pub fn open(&mut self, file: &Path, width: u32, theme: &str) {
        let phone = width < 500;
        let metrics = json!({ "width": width, "height": 800, "deviceScaleFactor": if phone { 2 } else { 1 }, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": phone }));
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.call("Emulation.setEmulatedMedia", scheme);
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.read();
            self.events.push(event);
        }
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let call = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", call);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Moves the mouse to a place in the window.
    pub fn point(&mut self, (x, y): (f64, f64)) {
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    /// Touches a place in the window.
    pub fn tap(&mut self, (x, y): (f64, f64)) {
        let points = json!([{ "x": x, "y": y }]);
        self.call("Input.dispatchTouchEvent", json!({ "type": "touchStart", "touchPoints": points }));
        self.call("Input.dispatchTouchEvent", json!({ "type": "touchEnd", "touchPoints": [] }));
    }

    /// Clicks at a place in the window.
    pub fn click(&mut self, (x, y): (f64, f64)) {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key such as `ArrowRight`.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "code": key }));
        }
    }

    /// The page as it would be printed, a PDF.
    pub fn print(&mut self) -> usize {
        self.call("Page.printToPDF", json!({}))["data"].as_str().map_or(0, str::len)
    }

    /// What the page complained about: errors, warnings, refused loads.
    pub fn complaints(&mut self) -> Vec<String> {
        self.value("0");
        let bad = ["Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"];
        let events = self.events.iter();
        events.filter(|event| bad.iter().any(|name| event["method"] == *name)).map(Value::to_string).collect()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        loop {
            let message = self.read();
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = vec![];
        self.from.read_until(0, &mut bytes).expect("the browser speaks");
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&bytes).expect("the protocol is JSON")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_installed(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(name).is_file())
}
