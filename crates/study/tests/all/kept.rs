//! The tables that `scripts/studies` keeps.

use std::collections::HashMap;

/// A table's ratios and values.
#[derive(Debug)]
pub struct Kept<'a> {
    /// Names of the parts and their policies.
    pub parts: Vec<(&'a str, Vec<&'a str>)>,
    lines: HashMap<[&'a str; 4], Vec<&'a str>>,
}

impl<'a> Kept<'a> {
    /// The table of a file.
    pub fn of(text: &'a str) -> Self {
        let mut kept = Self { parts: Vec::new(), lines: HashMap::new() };
        for line in text.lines() {
            let cells: Vec<&str> = line.split(',').collect();
            if let [part, "cell", "metric", "of", policies @ ..] = &cells[..] {
                kept.parts.push((part, policies.to_vec()));
            } else if let [part, cell, metric, of, figures @ ..] = &cells[..] {
                kept.lines.insert([part, cell, metric, of], figures.to_vec());
            }
        }
        kept
    }

    /// Value, least and greatest of a policy: part, cell, metric, baseline or nothing.
    pub fn get(&self, line: [&str; 4], policy: &str) -> Option<[f64; 3]> {
        let (_, policies) = self.parts.iter().find(|(part, _)| *part == line[0])?;
        let place = policies.iter().position(|each| *each == policy)?;
        Self::numbers(self.lines.get(&line)?.get(place)?)
    }

    /// The first three numbers of a text.
    pub fn numbers(text: &str) -> Option<[f64; 3]> {
        let mut words = text.split(' ').map(|word| word.parse().ok());
        Some([words.next()??, words.next()??, words.next()??])
    }
}
