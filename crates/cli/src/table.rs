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

    /// The lines; columns of numbers are aligned to the right. A table that is wider than `columns` gets cells of several
    /// lines.
    pub(crate) fn text(&self, columns: Option<usize>) -> String {
        let count = self.rows.first().map_or(0, Vec::len);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let numbers: Vec<bool> = (0..count).map(|column| are_numbers(cells(column).skip(1))).collect();
        let widest = |column: usize| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..count).map(widest).collect();
        if let Some(columns) = columns {
            let headings: Vec<usize> = cells_of(self.rows.first()).map(|cell| cell.chars().count()).collect();
            narrow(&mut widths, &headings, &numbers, columns);
        }
        let mut text = String::new();
        for row in &self.rows {
            let broken: Vec<Vec<String>> = row.iter().zip(&widths).map(|(cell, width)| pieces(cell, *width)).collect();
            for place in 0..broken.iter().map(Vec::len).max().unwrap_or(0) {
                let cells = broken.iter().map(|pieces| pieces.get(place).map_or("", String::as_str));
                text.push_str(&line(cells, &widths, &numbers));
            }
        }
        text
    }
}

fn cells_of(row: Option<&Vec<String>>) -> impl Iterator<Item = &String> {
    row.into_iter().flatten()
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], numbers: &[bool]) -> String {
    let mut line = String::new();
    for ((cell, width), number) in cells.zip(widths).zip(numbers) {
        let padding = " ".repeat(width - cell.chars().count().min(*width));
        let (before, after) = if *number { (padding.as_str(), "") } else { ("", padding.as_str()) };
        line.push_str(&format!("{before}{cell}{after}  "));
    }
    format!("{}\n", line.trim_end())
}

/// Takes from the widest columns of text until all fit, but not so much that a heading would be broken.
fn narrow(widths: &mut [usize], headings: &[usize], numbers: &[bool], columns: usize) {
    let gaps = 2 * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > columns {
        let may_shrink = |(place, width): &(usize, &mut usize)| {
            numbers.get(*place) == Some(&false)
                && headings.get(*place).is_some_and(|heading| **width > (*heading).max(1))
        };
        match widths.iter_mut().enumerate().filter(may_shrink).max_by_key(|(_, width)| **width) {
            Some((_, width)) => *width -= 1,
            None => return,
        }
    }
}

/// A cell in pieces of so many characters, broken between words where there are any.
fn pieces(cell: &str, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = cell.chars().collect();
    while rest.len() > width.max(1) {
        let space = rest.iter().take(width + 1).rposition(|char| *char == ' ').filter(|place| *place > 0);
        let end = space.unwrap_or(width.max(1));
        pieces.push(rest.drain(..end).collect());
        if space.is_some() {
            rest.remove(0);
        }
    }
    pieces.push(rest.into_iter().collect());
    pieces
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
        assert_eq!(table.text(None), expected);
        assert_eq!(table.text(Some(24)), expected);
    }

    #[test]
    fn a_table_that_is_too_wide_has_cells_of_several_lines() {
        let mut table = Table::new(["lease", "state", "owner", "changes", "behind"]);
        table.row(["0", "split pending", "host-6094dfb9d64b0e37", "120", "2m 3s"].map(str::to_owned));
        table.row(["1", "free", "-", "0", "-"].map(str::to_owned));
        let expected = "\
LEASE  STATE    OWNER    CHANGES  BEHIND
    0  split    host-60      120  2m 3s
       pending  94dfb9d
                64b0e37
    1  free     -              0  -
";
        assert_eq!(table.text(Some(40)), expected);
        assert_eq!(table.text(Some(5)).lines().next(), Some("LEASE  STATE  OWNER  CHANGES  BEHIND"), "no narrower");
    }
}
