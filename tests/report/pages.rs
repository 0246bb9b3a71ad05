//! What the pages of a measurement and of a replay do in a browser.

use crate::browser::Browser;
use crate::page::{middle, tip};
use crate::sample::{beyond, run};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const MODEL: &str = "models/moeslice-demo-Q8_0.gguf";

/// A trace of 2 layers of 32 experts, 4 of them used: prefill, then decode.
fn trace(folder: &Path) -> PathBuf {
    let path = folder.join("<i>trace.csv");
    let mut text = "session,phase,ubatch,position,layer,experts\n".to_owned();
    for token in 0..400_usize {
        let (phase, ubatch) = if token < 200 { ("prefill", token / 40) } else { ("decode", token) };
        for layer in 0..2 {
            let ids: Vec<String> =
                (0..4).map(|rank| ((token * token / 7 + layer + rank * 5) % 32).to_string()).collect();
            let _ = writeln!(text, "0,{phase},{ubatch},{token},{layer},{}", ids.join(" "));
        }
    }
    std::fs::write(&path, text).unwrap();
    path
}

fn replay_page(folder: &Path) -> PathBuf {
    let (trace, page) = (trace(folder), folder.join("replay.html"));
    let arguments = ["--capacity", "8,16,24", "--policy", "lru,lfu,static,belady", "--curve", "--report"];
    run(&[&["replay", trace.to_str().unwrap()], &arguments[..], &[page.to_str().unwrap()]].concat());
    page
}

/// The pages of a measurement, with a usage and without.
fn eval_pages(folder: &Path) -> [PathBuf; 2] {
    let [with, without, usage] = ["with.html", "without.html", "u.json"].map(|name| folder.join(name));
    let texts =
        ["-f", "<b>dev=corpora/dev-heldout", "-f", "family=corpora/family", "-c", "128", "--chunks", "2"];
    let begin = ["-q", "eval", "-m", MODEL];
    run(&[&["-q", "profile", "-m", MODEL], &texts[..], &["-o", usage.to_str().unwrap()]].concat());
    let cuts = ["--usage", usage.to_str().unwrap(), "--keep", "24,16,8", "--report", with.to_str().unwrap()];
    run(&[&begin[..], &texts, &cuts].concat());
    run(&[&begin[..], &texts, &["--report", without.to_str().unwrap()]].concat());
    [with, without]
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn pages_of_a_measurement_and_a_replay_fit_a_phone_without_complaints() {
    let folder = tempfile::tempdir().unwrap();
    let [with, without] = eval_pages(folder.path());
    let mut browser = Browser::start();
    for (page, figures) in [
        (&replay_page(folder.path()), &["#chart-0"][..]),
        (&with, &["#ppl-chart", "#kl-chart", "#heat"]),
        (&without, &["#corpora-chart"]),
    ] {
        for (width, theme) in [(360, "dark"), (360, "light"), (1200, "dark"), (1200, "light")] {
            browser.open(page, width, theme);
            browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
            assert_eq!(browser.complaints(), [""; 0], "{} {width} {theme}", page.display());
            assert_eq!(browser.value(beyond()), 0, "{} {width} {theme}", page.display());
            // A table may be wider than the window, what it is called may not.
            let right = "Math.max(...[...document.querySelectorAll('caption')].map((e) => { const r = document.createRange(); \
                         r.selectNodeContents(e); return r.getBoundingClientRect().right; }))";
            let right = browser.value(right).as_f64().unwrap();
            assert!(right <= f64::from(width), "{} {width} {theme}: {right}", page.display());
            for figure in figures {
                let place = middle(&mut browser, figure);
                if width < 500 {
                    browser.tap(place)
                } else {
                    browser.point(place)
                }
                assert!(!tip(&mut browser).is_empty(), "{figure} {width} {theme}");
            }
        }
        assert!(browser.print() > 10_000);
    }
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn switches_of_a_replay_change_what_is_drawn_and_keep_to_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let mut browser = Browser::start();
    browser.open(&replay_page(folder.path()), 1200, "light");
    assert_eq!(browser.value("document.querySelector('.facts dd').textContent"), "<i>trace.csv");
    let drawing = |browser: &mut Browser| browser.value("document.getElementById('chart-0').innerHTML");
    let whole = drawing(&mut browser);
    let place = middle(&mut browser, "input[name=part][value=decode]");
    browser.click(place);
    let decode = drawing(&mut browser);
    assert!(whole != decode);
    let place = middle(&mut browser, "#chart-0 svg");
    browser.point(place);
    let shown = tip(&mut browser);
    // The figure that stands nearest to the middle is the one of 16 experts.
    let missed = browser.value(
        "(() => { const { replay } = JSON.parse(document.getElementById('moeslice-data').textContent);
         const row = replay.rows.find((one) => one.policy === 'lfu' && one.capacity === 16);
         return `lfu: ${(Math.ceil((row.decode.misses / row.decode.requests) * 1000 - 1e-6) / 10).toFixed(1)}%`; })()",
    );
    let missed = missed.as_str().unwrap();
    assert!(shown.starts_with("16 experts of each layer") && shown.contains(missed), "{shown}, not {missed}");
    let place = middle(&mut browser, "input[name=measure][value=misses]");
    browser.click(place);
    assert!(decode != drawing(&mut browser));
    assert_eq!(browser.complaints(), [""; 0]);
}
