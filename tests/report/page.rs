//! What the page does in a browser.

use crate::browser::Browser;
use crate::sample::{NAMES, beyond, page, usage};
use serde_json::Value;

/// The middle of an element, after it was brought into the window.
pub fn middle(browser: &mut Browser, selector: &str) -> (f64, f64) {
    // Two frames later the page knows that it was scrolled.
    let place = browser.value(&format!(
        "new Promise((done) => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center' }});
         requestAnimationFrame(() => requestAnimationFrame(() => {{ const r = e.getBoundingClientRect();
         done([r.left + r.width / 2, r.top + r.height / 2]); }})); }})"
    ));
    (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
}

/// The words of the tooltip; nothing when it is not there.
pub fn tip(browser: &mut Browser) -> String {
    let text = browser
        .value("(() => { const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText; })()");
    text.as_str().unwrap().to_owned()
}

/// A digest of what the heat map shows.
fn picture(browser: &mut Browser) -> Value {
    browser.value("document.getElementById('heat').toDataURL()")
}

/// A usage of 94 layers of 512 experts, open in a browser of this width and theme.
fn large(width: u32, theme: &str) -> (tempfile::TempDir, Value, Browser) {
    let folder = tempfile::tempdir().unwrap();
    let usage = usage(94, 512);
    let page = page(&folder, &usage, &[]);
    assert!(std::fs::metadata(&page).unwrap().len() < 2_000_000);
    let mut browser = Browser::start();
    browser.open(&page, width, theme);
    (folder, usage, browser)
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn page_loads_without_complaints_and_fits_a_phone() {
    for (width, theme) in [(360, "light"), (360, "dark"), (1200, "light"), (1200, "dark")] {
        let (_folder, _, mut browser) = large(width, theme);
        assert_eq!(browser.complaints(), [""; 0], "{width} {theme}");
        assert_eq!(browser.value(beyond()), 0, "{width} {theme}");
        assert_eq!(browser.value("document.documentElement.classList.contains('drawn')"), true);
        for figure in ["cost-chart", "curves", "bars", "skew-bars"] {
            let marks =
                browser.value(&format!("document.querySelectorAll('#{figure} path, #{figure} rect').length"));
            assert!(marks.as_u64().unwrap() > 1, "{figure}");
        }
    }
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn page_stays_within_a_phone_with_all_tables_open() {
    let (_folder, _, mut browser) = large(360, "light");
    browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
    browser.value("document.getElementById('show-experts').click()");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
    // Each figure stands in a table too.
    for words in ["what each number", "busiest experts cover", "uneven", "same experts", "enough text"] {
        let tables = browser.value(&format!(
            "[...document.querySelectorAll('section')].filter((s) => s.querySelector('h2')?.innerText.toLowerCase().includes({words:?}))
             .reduce((n, s) => n + s.querySelectorAll('table').length, 0)"
        ));
        assert!(tables.as_u64().unwrap() >= 1, "{words}");
    }
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn embedded_document_has_the_counts_to_the_unit() {
    let (_folder, usage, mut browser) = large(1200, "light");
    let found = browser.value("JSON.parse(document.getElementById('moeslice-data').textContent).usage");
    assert_eq!(found["corpora"], usage["corpora"]);
    for (found, layer) in found["layers"].as_array().unwrap().iter().zip(usage["layers"].as_array().unwrap())
    {
        assert_eq!(found["total"], layer["total"]);
        assert_eq!(found["corpora"], layer["corpora"]);
    }
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn corpus_switch_changes_the_figures() {
    let (_folder, usage, mut browser) = large(1200, "dark");
    let before = (picture(&mut browser), browser.value("document.getElementById('curves').innerHTML"));
    let place = middle(&mut browser, "input[name=corpus][value='1']");
    browser.click(place);
    assert_eq!(browser.value("document.querySelector('input[name=corpus]:checked').value"), "1");
    let after = (picture(&mut browser), browser.value("document.getElementById('curves').innerHTML"));
    assert!(before.0 != after.0 && before.1 != after.1);
    // The tooltip now counts that corpus, whose name is text.
    let place = middle(&mut browser, "#heat");
    browser.point(place);
    let text = tip(&mut browser);
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |at: usize| words[at].trim_end_matches(',').replace(',', "").parse::<usize>().unwrap();
    let (layer, expert) = (number(1), number(3));
    let count = usage["layers"][layer]["corpora"][NAMES[1]]["count"][expert].as_u64().unwrap();
    assert_eq!(number(4) as u64, count, "{text}");
    assert!(text.contains("of <script>alert(1)</script>") && text.contains("of the routing"), "{text}");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn tooltips_answer_to_mouse_finger_and_keys() {
    let (_folder, _, mut browser) = large(1200, "light");
    for figure in ["#heat", "#cost-chart svg", "#curves svg", "#bars svg", "#skew-bars svg"] {
        let place = middle(&mut browser, figure);
        browser.point(place);
        assert!(!tip(&mut browser).is_empty(), "{figure}");
        browser.press("Escape");
        assert_eq!(tip(&mut browser), "", "{figure}");
    }
    browser.value("document.getElementById('heat').focus()");
    browser.press("ArrowDown");
    browser.press("ArrowRight");
    assert!(tip(&mut browser).starts_with("Layer 1, expert 1"), "{}", tip(&mut browser));
    let said = browser.value("document.getElementById('heat-says').textContent");
    assert!(said.as_str().unwrap().starts_with("Layer 1, expert 1. "), "{said}");
    assert_eq!(browser.value("document.getElementById('layer').value"), "1");

    let (_folder, _, mut browser) = large(360, "dark");
    for figure in ["#heat", "#cost-chart svg", "#bars svg"] {
        let place = middle(&mut browser, figure);
        browser.tap(place);
        assert!(!tip(&mut browser).is_empty(), "{figure}: what a finger showed stays when it is lifted");
    }
    let place = middle(&mut browser, "h1");
    browser.tap(place);
    assert_eq!(tip(&mut browser), "");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn table_of_a_layer_is_built_when_it_is_asked_for() {
    let (_folder, usage, mut browser) = large(1200, "light");
    let rows = |browser: &mut Browser| browser.value("document.querySelectorAll('#experts tbody tr').length");
    assert_eq!(rows(&mut browser), 0);
    let place = middle(&mut browser, "#show-experts");
    browser.click(place);
    assert_eq!(rows(&mut browser), 512);
    let cells = browser.value("[...document.querySelectorAll('#experts tbody tr')].map((r) => r.cells[2].innerText.replaceAll(',', ''))");
    let counts = usage["layers"][0]["total"]["count"].as_array().unwrap();
    for (cell, count) in cells.as_array().unwrap().iter().zip(counts) {
        assert_eq!(cell.as_str().unwrap(), count.to_string());
    }
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn page_prints_on_light_paper_from_a_dark_screen() {
    let (_folder, _, mut browser) = large(1200, "dark");
    let screen = picture(&mut browser);
    browser.value("dispatchEvent(new Event('beforeprint'))");
    let paper = picture(&mut browser);
    assert!(screen != paper);
    browser.value("dispatchEvent(new Event('afterprint'))");
    assert!(screen == picture(&mut browser));
    assert!(browser.print() > 10_000);
    assert_eq!(browser.complaints(), [""; 0]);
}
