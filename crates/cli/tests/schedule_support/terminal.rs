//! A terminal's screen: what becomes of text with the few control sequences that colocate writes.

/// Lines of characters, with a region that scrolls.
pub struct Terminal {
    lines: Vec<Vec<char>>,
    columns: usize,
    /// First line of the region, and the first one below it.
    region: (usize, usize),
    cursor: (usize, usize),
    kept: (usize, usize),
    /// Lines that have gone over the top, oldest first.
    pub above: Vec<String>,
}

impl Terminal {
    pub fn new(lines: usize, columns: usize) -> Self {
        Self {
            lines: vec![Vec::new(); lines],
            columns,
            region: (0, lines),
            cursor: (0, 0),
            kept: (0, 0),
            above: Vec::new(),
        }
    }

    /// The lines of the screen, without blanks at their ends.
    pub fn screen(&self) -> Vec<String> {
        self.lines.iter().map(|line| text(line)).collect()
    }

    pub fn region(&self) -> (usize, usize) {
        self.region
    }

    /// It becomes larger by so many lines, as a window does: they are empty, and everything scrolls.
    pub fn grow(&mut self, lines: usize) {
        self.lines.extend(vec![Vec::new(); lines]);
        self.region = (0, self.lines.len());
    }

    /// Writes `text`. What is no control sequence of those that are known here fails the test.
    pub fn take(&mut self, text: &str) {
        let mut rest = text.chars();
        while let Some(next) = rest.next() {
            match next {
                '\r' => self.cursor.1 = 0,
                '\n' => self.down(),
                '\u{1b}' => match rest.next() {
                    Some('7') => self.kept = self.cursor,
                    Some('8') => self.cursor = self.kept,
                    Some('D') => self.down(),
                    Some('[') => {
                        let sequence = rest.as_str();
                        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                        let (numbers, letter) = sequence.split_at(end);
                        self.control(numbers, letter.chars().next().unwrap());
                        rest = letter[1..].chars();
                    }
                    other => panic!("ESC {other:?}"),
                },
                other => self.print(other),
            }
        }
    }

    fn print(&mut self, character: char) {
        if self.cursor.1 == self.columns {
            self.cursor.1 = 0;
            self.down();
        }
        let (line, column) = self.cursor;
        let cells = &mut self.lines[line];
        cells.resize(cells.len().max(column + 1), ' ');
        cells[column] = character;
        self.cursor.1 += 1;
    }

    fn down(&mut self) {
        let (first, end) = self.region;
        if self.cursor.0 + 1 == end {
            let gone = self.lines.remove(first);
            self.lines.insert(end - 1, Vec::new());
            if first == 0 {
                self.above.push(text(&gone));
            }
        } else if self.cursor.0 + 1 < self.lines.len() {
            self.cursor.0 += 1;
        }
    }

    fn control(&mut self, numbers: &str, letter: char) {
        let number = |place: usize| numbers.split(';').nth(place).and_then(|n| n.parse().ok());
        let times: usize = number(0).unwrap_or(1).max(1);
        let all = self.lines.len();
        let (line, column) = self.cursor;
        match letter {
            'm' => {}
            'A' => self.cursor.0 = line.saturating_sub(times),
            'B' => self.cursor.0 = (line + times).min(all - 1),
            'H' => self.cursor = (times - 1, number(1).unwrap_or(1) - 1),
            'r' => {
                self.region = (times - 1, number(1).unwrap_or(all));
                self.cursor = (0, 0);
            }
            'K' if numbers == "2" => self.lines[line].clear(),
            'J' => {
                self.lines[line].truncate(column);
                self.lines[line + 1..].iter_mut().for_each(Vec::clear);
            }
            _ => panic!("ESC [ {numbers} {letter}"),
        }
    }
}

fn text(line: &[char]) -> String {
    line.iter().collect::<String>().trim_end().to_owned()
}
