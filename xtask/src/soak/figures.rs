//! Reading figures out of what tools print.

/// How many tests passed, by the closing lines of the test programs.
pub(crate) fn passed(said: &[String]) -> u64 {
    let count = |line: &String| -> Option<u64> {
        let (_, rest) = line.split_once("test result: ok. ")?;
        rest.split(' ').next()?.parse().ok()
    };
    said.iter().filter_map(count).sum()
}

/// How many inputs libFuzzer has run.
pub(crate) fn executed(said: &[String]) -> Option<u64> {
    said.iter().find_map(|line| {
        let (_, count) = line.split_once("stat::number_of_executed_units:")?;
        count.trim().parse().ok()
    })
}

/// What Criterion says of each benchmark: its name, and the middle of the three times.
pub(crate) fn times(said: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut name = "";
    for line in said {
        // A long name stands on a line of its own.
        let Some((before, rest)) = line.split_once("time:   [") else {
            name = line.trim();
            continue;
        };
        let before = before.trim();
        let name = if before.is_empty() { name } else { before };
        // Percentages, against the run before.
        if name == "change:" {
            continue;
        }
        let numbers: Vec<&str> = rest.trim_end_matches(']').split(' ').collect();
        if let [_, _, middle, unit, ..] = numbers[..] {
            found.push((name.to_owned(), format!("{middle} {unit}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn figures_are_found() {
        let tests = "running 2 tests\ntest result: ok. 2 passed; 0 failed\n\
                     test result: ok. 13 passed; 0 failed";
        assert_eq!(passed(&lines(tests)), 15);
        let fuzzer = "#2 INITED cov: 7\nstat::number_of_executed_units: 1234\nstat::average: 3";
        assert_eq!(executed(&lines(fuzzer)), Some(1234));
        assert_eq!(executed(&lines("nothing")), None);
        let bench = "push/check/1            time:   [10.123 ns 10.456 ns 10.789 ns]\n\
                     router/push/json/100\n\
                     \x20                       time:   [1.9000 ms 2.0000 ms 2.1000 ms]\n\
                     \x20                       thrpt:  [47.6 Kelem/s 50 Kelem/s 52 Kelem/s]\n\
                     \x20                change:\n\
                     \x20                       time:   [-3.1% -2.2% -1.3%] (p = 0.05 > 0.05)";
        let told = times(&lines(bench));
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], ("push/check/1".to_owned(), "10.456 ns".to_owned()));
        assert_eq!(
            told[1],
            ("router/push/json/100".to_owned(), "2.0000 ms".to_owned())
        );
    }
}
