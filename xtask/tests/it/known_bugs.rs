//! docs/known-bugs.md names tests that there are.

use crate::repository::{text, tracked};

#[test]
fn each_known_bug_has_its_test() {
    let table = text("docs/known-bugs.md".as_ref()).expect("a text");
    let rows: Vec<&str> = table
        .lines()
        .skip_while(|line| !line.contains("---"))
        .skip(1)
        .collect();
    assert!(rows.len() > 10, "no table was found");
    let sources: String = tracked()
        .iter()
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .filter_map(|path| text(path))
        .collect();
    for row in rows {
        let tests: Vec<&str> = row
            .rsplit('|')
            .nth(1)
            .unwrap_or_default()
            .split('`')
            .collect();
        let names: Vec<&str> = tests.into_iter().skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            let is_there = sources.contains(&format!("fn {name}("));
            assert!(is_there, "no test is called {name}");
        }
    }
}
