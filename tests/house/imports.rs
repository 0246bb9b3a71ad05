//! Which file uses which, and the order of knowledge.

use crate::source::{Token, Tokens, tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rooms in the order of knowledge: each may use those before it.
pub const ORDER: [&str; 31] = [
    "units",
    "random",
    "progress",
    "sys",
    "digest",
    "json",
    "gguf",
    "arch",
    "moe",
    "usage",
    "trace",
    "score",
    "plan",
    "slice",
    "cache",
    "replay",
    "llama",
    "preflight",
    "corpus",
    "windows",
    "profile",
    "evaluate",
    "bench",
    "report",
    "page",
    "supervise",
    "fuzzing",
    "console",
    "flags",
    "cli",
    "main",
];

/// The sources below `src/`.
pub struct House {
    files: BTreeMap<PathBuf, Tokens>,
    tests: BTreeSet<PathBuf>,
    /// For each file, the names that it imports, and the absolute paths that they stand for.
    names: BTreeMap<PathBuf, BTreeMap<String, Vec<String>>>,
}

/// A path in the code: the module that it stands in, its segments, and the name that an import gives it.
struct Reference {
    module: Vec<String>,
    segments: Vec<String>,
    import: Option<String>,
}

impl House {
    pub fn new(sources: BTreeMap<PathBuf, String>) -> Self {
        let files: BTreeMap<PathBuf, Tokens> =
            sources.into_iter().map(|(path, text)| (path, tokens(&text))).collect();
        let mut house = House { files, tests: BTreeSet::new(), names: BTreeMap::new() };
        house.find_tests();
        for path in house.files.keys() {
            let imported = house.references(path).into_iter().filter_map(|reference| {
                let absolute = house.absolute(&reference)?;
                Some((reference.import?, absolute))
            });
            house.names.insert(path.clone(), imported.collect());
        }
        house
    }

    /// Files of tests: those in `tests.rs` and `tests/`, and those that are declared under `#[cfg(test)]`.
    fn find_tests(&mut self) {
        let mut roots = Vec::new();
        for (path, tokens) in &self.files {
            let module = module_of(path);
            roots.extend(
                tokens
                    .test_modules
                    .iter()
                    .map(|name| [module.as_slice(), std::slice::from_ref(name)].concat()),
            );
        }
        let is_test = |path: &&PathBuf| {
            let module = module_of(path);
            module.iter().any(|name| name == "tests") || roots.iter().any(|root| module.starts_with(root))
        };
        self.tests = self.files.keys().filter(is_test).cloned().collect();
    }

    fn sources(&self) -> impl Iterator<Item = (&PathBuf, &Tokens)> {
        self.files.iter().filter(|(path, _)| !self.tests.contains(*path))
    }

    /// Each file and its lines, tests not counted.
    pub fn lines(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.sources().map(|(path, tokens)| (path.as_path(), tokens.lines))
    }

    pub fn unsafe_outside(&self, rooms: &[&str]) -> Vec<String> {
        let outside = self.files.iter().filter(|(path, _)| !rooms.contains(&room_of(path).as_str()));
        outside
            .flat_map(|(path, tokens)| {
                let all = tokens.code.iter().chain(&tokens.tests).filter(|token| token.text == "unsafe");
                all.map(|token| format!("{}:{}", path.display(), token.line))
            })
            .collect()
    }

    pub fn rooms_without_place(&self) -> Vec<String> {
        let rooms: BTreeSet<String> = self.sources().map(|(path, _)| room_of(path)).collect();
        rooms.into_iter().filter(|room| room != "lib" && !ORDER.contains(&room.as_str())).collect()
    }

    pub fn against_the_order(&self) -> Vec<String> {
        let place = |room: &str| ORDER.iter().position(|known| *known == room);
        let mut breaches = BTreeSet::new();
        for (path, _) in self.sources() {
            let room = room_of(path);
            let Some(own) = place(&room) else { continue };
            for reference in self.references(path) {
                let Some(absolute) = self.absolute(&reference) else { continue };
                let target = self.resolve(&absolute, 0);
                let named = absolute.first().cloned();
                let used = target.map(|target| room_of(&target)).into_iter().chain(named);
                for used in used.filter(|used| place(used).is_some_and(|other| other > own)) {
                    breaches.insert(format!("{} uses {used}", path.display()));
                }
            }
        }
        breaches.into_iter().collect()
    }

    pub fn circles(&self) -> Vec<String> {
        let mut edges = BTreeSet::new();
        for (path, _) in self.sources() {
            let used = self.references(path).into_iter().filter_map(|reference| self.absolute(&reference));
            for target in used.filter_map(|absolute| self.resolve(&absolute, 0)) {
                if target != *path && !are_one(path, &target) {
                    edges.insert((path.clone(), target));
                }
            }
        }
        edges
            .iter()
            .filter(|(a, b)| a < b && edges.contains(&(b.clone(), a.clone())))
            .map(|(a, b)| format!("{} and {}", a.display(), b.display()))
            .collect()
    }

    /// The file of a module.
    fn file_of(&self, module: &[String]) -> Option<PathBuf> {
        let path: PathBuf = module.iter().collect();
        let names = match module {
            [] => [PathBuf::from("lib.rs"), PathBuf::from("lib.rs")],
            _ => [path.with_extension("rs"), path.join("mod.rs")],
        };
        names.into_iter().find(|path| self.files.contains_key(path))
    }

    /// The file in which what `absolute` names stands, re-exports followed.
    fn resolve(&self, absolute: &[String], depth: u32) -> Option<PathBuf> {
        let known = (0..=absolute.len()).rev().find(|&n| self.file_of(&absolute[..n]).is_some())?;
        let file = self.file_of(&absolute[..known])?;
        let followed = absolute.get(known).filter(|_| depth < 8).and_then(|name| {
            let target = self.names.get(&file)?.get(name)?;
            self.resolve(&[target.as_slice(), &absolute[known + 1..]].concat(), depth + 1)
        });
        Some(followed.unwrap_or(file))
    }

    /// The path from the root of the crate; none for other crates.
    fn absolute(&self, reference: &Reference) -> Option<Vec<String>> {
        let mut module = reference.module.clone();
        let mut segments = reference.segments.as_slice();
        match segments.first()?.as_str() {
            "crate" => {
                module.clear();
                segments = &segments[1..];
            }
            "self" => segments = &segments[1..],
            "super" => {
                while segments.first().is_some_and(|segment| segment == "super") {
                    module.pop()?;
                    segments = &segments[1..];
                }
            }
            // A child module; else another crate, or something in scope.
            child => {
                self.file_of(&[module.as_slice(), &[child.to_owned()]].concat())?;
            }
        }
        module.extend(segments.iter().filter(|segment| *segment != "*").cloned());
        Some(module)
    }

    /// All paths in a file's own code: those of `use`, and those in expressions and types that begin at a known place.
    fn references(&self, path: &Path) -> Vec<Reference> {
        let code = &self.files[path].code;
        let mut found = Vec::new();
        let mut module = module_of(path);
        // The depths of braces at which modules inside the file began.
        let (mut depth, mut inner) = (0_usize, Vec::new());
        let mut at = 0;
        while at < code.len() {
            match code[at].text.as_str() {
                "{" => {
                    depth += 1;
                    if at >= 2 && code[at - 2].text == "mod" {
                        inner.push(depth);
                        module.push(code[at - 1].text.clone());
                    }
                }
                "}" => {
                    if inner.last() == Some(&depth) {
                        inner.pop();
                        module.pop();
                    }
                    depth = depth.saturating_sub(1);
                }
                // Not the `use<'a>` of a return type.
                "use" if code.get(at + 1).is_some_and(|next| next.text != "<") => {
                    let len = code[at..].iter().take_while(|token| token.text != ";").count();
                    let mut rest = &code[at + 1..at + len];
                    leaves(&mut rest, &[], &mut |segments, import| {
                        found.push(Reference { module: module.clone(), segments, import: Some(import) });
                    });
                    at += len;
                    continue;
                }
                "crate" | "super" | "self" if at == 0 || code[at - 1].text != "::" => {
                    let mut segments = vec![code[at].text.clone()];
                    while code.get(at + 1).is_some_and(|next| next.text == "::") {
                        let Some(name) = code.get(at + 2).filter(|name| is_word(&name.text)) else { break };
                        segments.push(name.text.clone());
                        at += 2;
                    }
                    if segments.len() > 1 {
                        found.push(Reference { module: module.clone(), segments, import: None });
                    }
                }
                _ => {}
            }
            at += 1;
        }
        found
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Takes a tree of `use` apart: each path, and the name that it gets.
fn leaves(rest: &mut &[Token], prefix: &[String], each: &mut impl FnMut(Vec<String>, String)) {
    let mut path = prefix.to_vec();
    while let Some((token, after)) = rest.split_first() {
        match token.text.as_str() {
            "{" => {
                *rest = after;
                while !rest.is_empty() && rest[0].text != "}" {
                    leaves(rest, &path, each);
                    if rest.first().is_some_and(|token| token.text == ",") {
                        *rest = &rest[1..];
                    }
                }
                *rest = rest.get(1..).unwrap_or_default();
                return;
            }
            "}" | "," => break,
            "::" => {}
            "as" => {
                let name = after.first().map(|token| token.text.clone()).unwrap_or_default();
                *rest = after.get(1..).unwrap_or_default();
                return each(path, name);
            }
            // `a::{self}` is `a`.
            "self" if !path.is_empty() => {}
            _ => path.push(token.text.clone()),
        }
        *rest = after;
    }
    if let Some(name) = path.last().cloned() {
        each(path, name);
    }
}

/// The module that a file holds.
fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") || module == ["lib"] {
        module.pop();
    }
    module
}

/// The room that a file belongs to.
fn room_of(path: &Path) -> String {
    module_of(path).into_iter().next().unwrap_or_else(|| "lib".to_owned())
}

/// Whether one of two files is the other's parent: a folder and its own files are one thing in several files.
fn are_one(a: &Path, b: &Path) -> bool {
    let (a, b) = (module_of(a), module_of(b));
    let is_child =
        |child: &[String], parent: &[String]| child.split_last().is_some_and(|(_, rest)| rest == parent);
    is_child(&a, &b) || is_child(&b, &a)
}
