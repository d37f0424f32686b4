//! `changefeed man`: man pages of the command and each sub-command.

use std::{fs, path::Path};

use clap::CommandFactory as _;

use crate::{
    args::Args,
    exit::{Exit, Result, print, print_text},
};

/// Writes all pages into a folder, or prints that of the whole command.
pub(crate) fn man(dir: Option<&Path>) -> Result<Exit> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Args::command()).render(&mut page)?;
        print(&String::from_utf8(page)?)?;
        return Ok(Exit::Good);
    };
    let shown = dir.display();
    fs::create_dir_all(dir).map_err(|error| format!("make the folder {shown}: {error}"))?;
    clap_mangen::generate_to(Args::command(), dir).map_err(|error| format!("write into {shown}: {error}"))?;
    print_text(&format!("man pages written to {shown}: try `man {shown}/changefeed.1`\n"))?;
    Ok(Exit::Good)
}
