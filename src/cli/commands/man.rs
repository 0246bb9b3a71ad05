//! `moeslice man`: the manual page, made from the flags.

use crate::console::failure::Failure;
use crate::console::print;
use clap_mangen::Man;
use std::fmt::Write as _;
use std::io;

/// Prints the manual page of `program`, the whole command line: one page, with a section for each command.
pub fn man(mut program: clap::Command) -> Result<(), Failure> {
    program.build();
    let page = page(&program).map_err(|error| Failure::running(anyhow::Error::from(error)))?;
    Ok(print(&page)?)
}

fn page(program: &clap::Command) -> io::Result<String> {
    let man = Man::new(program.clone());
    let mut page = text(|out| {
        man.render_title(out)?;
        man.render_name_section(out)?;
        man.render_synopsis_section(out)?;
        man.render_description_section(out)?;
        man.render_options_section(out)
    })?;
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let man = Man::new(command.clone());
        let about = text(|out| {
            man.render_synopsis_section(out)?;
            man.render_description_section(out)?;
            man.render_options_section(out)
        })?;
        let name = format!("{} {}", program.get_name(), command.get_name()).to_uppercase();
        let _ = writeln!(page, ".SH \"{name}\"");
        // What is a section in a page of its own is a part of the command's section here.
        for line in about.lines() {
            let _ = match line.strip_prefix(".SH ") {
                Some(part) => writeln!(page, ".SS {part}"),
                None => writeln!(page, "{line}"),
            };
        }
    }
    page.push_str(&text(|out| man.render_extra_section(out))?);
    Ok(page)
}

fn text(render: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> io::Result<String> {
    let mut bytes = Vec::new();
    render(&mut bytes)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
