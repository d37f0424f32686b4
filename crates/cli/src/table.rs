//! Tables for people: columns as wide as what is in them, headings in capitals.

/// A table that is filled line by line.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.map(str::to_uppercase).to_vec()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// The lines; columns of numbers are aligned to the right.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> =
            (0..columns).map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
        let numbers: Vec<bool> = (0..columns).map(|column| are_numbers(cells(column).skip(1))).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), number) in row.iter().zip(&widths).zip(&numbers) {
                let padding = " ".repeat(width - cell.chars().count().min(*width));
                let (before, after) = if *number { (padding.as_str(), "") } else { ("", padding.as_str()) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Whether the cells are numbers, exact or estimated; `-` stands for none.
fn are_numbers<'a>(cells: impl Iterator<Item = &'a String>) -> bool {
    let mut given = cells.filter(|cell| *cell != "-").peekable();
    let is_number = |cell: &String| cell.trim_start_matches('~').parse::<u64>().is_ok();
    given.peek().is_some() && given.all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_spaces_at_their_end() {
        let mut table = Table::new(["lease", "changes", "owner"]);
        table.row(["0".to_owned(), "7".to_owned(), "worker-1".to_owned()]);
        table.row(["10".to_owned(), "~1200".to_owned(), "-".to_owned()]);
        table.row(["11".to_owned(), "-".to_owned(), String::new()]);
        let expected = "LEASE  CHANGES  OWNER\n    0        7  worker-1\n   10    ~1200  -\n   11        -\n";
        assert_eq!(table.text(), expected);
    }
}
