pub fn child(_: &str) {}
