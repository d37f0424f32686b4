//! What a terminal shows after everything that was written to it: as much of a terminal as the commands use.

/// The lines of a terminal, those that have left it at its top included.
pub(crate) struct Screen {
    columns: usize,
    rows: usize,
    /// All lines; the last `rows` of them are on the screen.
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// How often a character was written beyond the last column, and therefore into the next line.
    pub(crate) wraps: usize,
}

impl Screen {
    /// A terminal of this size after `written`.
    pub(crate) fn after(columns: usize, rows: usize, written: &str) -> Self {
        let mut screen = Self::new(columns, rows);
        screen.write(written);
        screen
    }

    /// A terminal of this size on which nothing is written.
    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, lines: vec![vec![' '; columns]; rows], row: 0, column: 0, wraps: 0 }
    }

    /// Writes text and whole escape sequences.
    pub(crate) fn write(&mut self, written: &str) {
        let mut chars = written.chars();
        while let Some(char) = chars.next() {
            match char {
                '\x1b' => self.escape(&mut chars),
                '\r' => self.column = 0,
                '\n' => self.line_feed(),
                '\x08' => self.column = self.column.saturating_sub(1),
                '\x07' => {}
                char => self.put(char),
            }
        }
    }

    /// All lines, without spaces at their ends.
    pub(crate) fn text(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    fn first(&self) -> usize {
        self.lines.len() - self.rows
    }

    fn put(&mut self, char: char) {
        if self.column == self.columns {
            self.wraps += 1;
            self.column = 0;
            self.line_feed();
        }
        let row = self.first() + self.row;
        self.lines[row][self.column] = char;
        self.column += 1;
    }

    fn line_feed(&mut self) {
        if self.row + 1 == self.rows {
            self.lines.push(vec![' '; self.columns]);
        } else {
            self.row += 1;
        }
    }

    /// An escape sequence, after its first character.
    fn escape(&mut self, chars: &mut std::str::Chars<'_>) {
        match chars.next() {
            Some('[') => {}
            Some('7' | '8' | '=' | '>') | None => return,
            other => panic!("an escape sequence that is not known here: {other:?}"),
        }
        let mut parameters = String::new();
        let end = loop {
            // What is not written yet is nothing yet.
            let Some(char) = chars.next() else { return };
            if ('\x40'..='\x7e').contains(&char) {
                break char;
            }
            parameters.push(char);
        };
        let numbers: Vec<usize> = parameters.split(';').map(|number| number.parse().unwrap_or(0)).collect();
        let number = |place: usize| numbers.get(place).copied().unwrap_or(0).max(1);
        match end {
            'H' => {
                self.row = (number(0) - 1).min(self.rows - 1);
                self.column = (number(1) - 1).min(self.columns - 1);
            }
            'A' => self.row = self.row.saturating_sub(number(0)),
            'B' => self.row = (self.row + number(0)).min(self.rows - 1),
            'C' => self.column = (self.column + number(0)).min(self.columns - 1),
            'D' => self.column = self.column.saturating_sub(number(0)),
            'G' => self.column = (number(0) - 1).min(self.columns - 1),
            'J' => {
                let row = self.first() + self.row;
                let from = if numbers[0] == 0 { row } else { self.first() };
                let column = if numbers[0] == 0 { self.column } else { 0 };
                self.lines[from].iter_mut().skip(column).for_each(|cell| *cell = ' ');
                self.lines[from + 1..].iter_mut().flatten().for_each(|cell| *cell = ' ');
            }
            'K' => {
                let (row, from) = (self.first() + self.row, if numbers[0] == 0 { self.column } else { 0 });
                self.lines[row].iter_mut().skip(from).for_each(|cell| *cell = ' ');
            }
            // Colours, modes, questions.
            'm' | 'h' | 'l' | 'n' => {}
            other => panic!("a control sequence that is not known here: {parameters}{other}"),
        }
    }
}

#[test]
fn a_screen_shows_what_was_written_last() {
    let screen = Screen::after(5, 2, "ab\r\ncdefgh\x1b[1;1Hx\x1b[31my\x1b[0m");
    assert_eq!(screen.text(), ["ab", "xyefg", "h"]);
    assert_eq!(screen.wraps, 1);
    assert_eq!(Screen::after(5, 2, "abcd\x1b[1;3H\x1b[K\x1b[2;1Hz\x1b[2J").text(), ["", ""]);
}
