//! The drawing of the rooms in `ARCHITECTURE.md`, made from what cargo says.
//!
//! A room stands above all that it is built on. Beside it stand only those that no other of them is built on, so that
//! what can be reached another way is not drawn twice.

use std::collections::{BTreeMap, BTreeSet};

use super::edges::{Edges, WITHOUT_A_ROW};

const BEGIN: &str = "<!-- made by `cargo xtask tidy --write` -->\n```\n";
const END: &str = "```\n";

/// What the page should have where it now has a drawing; nothing if it has no place for one.
pub fn redrawn(page: &str, edges: &Edges) -> Result<String, String> {
    let drawing = draw(edges)?;
    let (before, rest) =
        page.split_once(BEGIN).ok_or("ARCHITECTURE.md: the place for the drawing of the rooms is gone")?;
    let (_, after) = rest.split_once(END).ok_or("ARCHITECTURE.md: the drawing of the rooms has no end")?;
    Ok(format!("{before}{BEGIN}{drawing}{END}{after}"))
}

fn draw(edges: &Edges) -> Result<String, String> {
    let rooms: Edges = edges
        .iter()
        .filter(|(room, _)| !WITHOUT_A_ROW.contains(&room.as_str()))
        .map(|(room, on)| (room.clone(), on.iter().filter(|on| edges.contains_key(*on)).cloned().collect()))
        .collect();
    let levels = levels(&rooms)?;
    let highest = levels.values().copied().max().unwrap_or(0);
    let width = rooms.keys().map(String::len).max().unwrap_or(0);
    let mut drawing = String::new();
    for level in (0..=highest).rev() {
        for room in levels.iter().filter(|(_, at)| **at == level).map(|(room, _)| *room) {
            let on = nearest(&rooms, room).join(", ");
            let line = format!("{level}  {room:width$}  {}{on}", if on.is_empty() { "" } else { "-> " });
            drawing.push_str(line.trim_end());
            drawing.push('\n');
        }
    }
    Ok(drawing)
}

/// How many rooms stand below each, one on another.
fn levels(rooms: &Edges) -> Result<BTreeMap<&str, usize>, String> {
    let mut levels = BTreeMap::<&str, usize>::new();
    while levels.len() < rooms.len() {
        let known = levels.len();
        for (room, on) in rooms {
            let below: Option<Vec<usize>> = on.iter().map(|on| levels.get(on.as_str()).copied()).collect();
            if let Some(below) = below {
                levels.insert(room, below.into_iter().max().map_or(0, |highest| highest + 1));
            }
        }
        if levels.len() == known {
            let left: Vec<&str> =
                rooms.keys().map(String::as_str).filter(|room| !levels.contains_key(room)).collect();
            return Err(format!("these rooms are built on each other in a circle: {}", left.join(", ")));
        }
    }
    Ok(levels)
}

/// What a room is built on, without what the rest of it is built on too.
fn nearest<'a>(rooms: &'a Edges, room: &str) -> Vec<&'a str> {
    let Some(on) = rooms.get(room) else { return Vec::new() };
    let further: BTreeSet<&str> = on.iter().flat_map(|on| all_below(rooms, on)).collect();
    on.iter().map(String::as_str).filter(|on| !further.contains(on)).collect()
}

fn all_below<'a>(rooms: &'a Edges, room: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = rooms.get(room).into_iter().flatten().map(String::as_str).collect();
    while let Some(room) = next.pop() {
        if found.insert(room) {
            next.extend(rooms.get(room).into_iter().flatten().map(String::as_str));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(rooms: &[(&str, &[&str])]) -> Edges {
        let owned = |on: &[&str]| on.iter().map(|on| (*on).to_owned()).collect();
        rooms.iter().map(|(room, on)| ((*room).to_owned(), owned(on))).collect()
    }

    #[test]
    fn a_room_stands_above_what_it_is_built_on() {
        let house =
            edges(&[("engine", &[]), ("wire", &["engine"]), ("server", &["engine", "wire"]), ("xtask", &[])]);
        assert_eq!(draw(&house).unwrap(), "2  server  -> wire\n1  wire    -> engine\n0  engine\n");
    }

    #[test]
    fn a_circle_is_named() {
        let house = edges(&[("a", &["b"]), ("b", &["a"]), ("c", &[])]);
        assert!(draw(&house).unwrap_err().contains("a, b"));
    }

    #[test]
    fn the_drawing_is_put_in_its_place_and_nothing_else_changes() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let house = edges(&[("engine", &[])]);
        assert_eq!(redrawn(&page, &house).unwrap(), format!("before\n{BEGIN}0  engine\n{END}after\n"));
        assert!(redrawn("no place", &house).is_err());
    }
}
