//! Each event gets exactly one row, whichever process writes and wherever a writer is killed.

use std::fs;
use std::fs::OpenOptions;

use super::*;

#[test]
fn an_event_gets_one_row_however_often_it_is_told() {
    let world = TestChain::new();
    let (mut one, mut two) = (world.chain(), world.chain());
    for _ in 0..3 {
        one.append(START, &[first("a"), at(2, "a"), at(2, "a"), at(5, "a")]).unwrap();
        two.append(START, &[first("a"), at(2, "a"), at(5, "a"), at(6, "a"), first("b"), at(1, "b")]).unwrap();
    }
    assert_eq!(world.positions("a"), [0, 2, 5, 6]);
    assert_eq!(world.positions("b"), [0, 1]);
    assert_eq!(one.cursor(START, "a").unwrap(), Some(6));
    assert_eq!(one.cursor(START, "c").unwrap(), None);
    world.check_whole(7);
}

#[test]
fn nothing_is_written_of_a_session_that_is_gone() {
    let world = TestChain::new();
    let gone = RowDraft { entry: entry(DELETED, "a", json!({})), when: RowCondition::Last };
    let closed = RowDraft { entry: entry("session.closed", "a", json!({})), when: RowCondition::Always };
    let mut chain = world.chain();
    chain.append(START, &[first("a"), at(2, "a")]).unwrap();
    chain.append(START, &[gone.clone(), closed.clone(), at(3, "a"), gone.clone()]).unwrap();
    world.chain().append(START, &[first("a"), at(4, "a"), closed, gone]).unwrap();
    world.check_whole(4);
}

/// Wherever the bytes of a batch end (around every row's end, and each thirteenth byte within), whichever of the files beside the chain is older: the rows that
/// are missing are written, the others are not written again.
#[test]
fn a_kill_within_a_batch_loses_nothing_and_doubles_nothing() {
    let world = TestChain::new();
    let batch = [at(3, "a"), at(5, "a"), at(9, "a")];
    world.chain().append(START, &[first("a"), at(1, "a")]).unwrap();
    let (file, head) = (world.file(0), world.folder().join("head.json"));
    let (before, old_head) = (fs::metadata(&file).unwrap().len(), fs::read(&head).unwrap());
    world.chain().append(START, &batch).unwrap();
    let whole = fs::read(&file).unwrap();
    for end in (usize::try_from(before).unwrap()..=whole.len()).rev() {
        let near_an_end = whole[end.saturating_sub(2)..].iter().take(4).any(|byte| *byte == b'\n');
        if end % 13 != 0 && !near_an_end {
            continue;
        }
        fs::write(&file, &whole[..end]).unwrap();
        fs::write(&head, &old_head).unwrap();
        fs::remove_file(world.folder().join("cursors.json")).ok();
        let mut chain = world.chain();
        chain.append(START, &batch).unwrap();
        if end % 2 == 0 {
            chain.save_cursors();
        }
        let torn = end as u64 > before && whole[end - 1] != b'\n';
        let report = world.verify();
        assert!(report.is_whole() && report.torn.len() == usize::from(torn), "{end}: {report:?}");
        assert_eq!(world.positions("a"), [0, 1, 3, 5, 9], "{end}");
    }
}

#[test]
fn what_was_seen_is_kept_and_can_be_lost() {
    let world = TestChain::new();
    let mut chain = world.chain();
    chain.append(START, &[first("a"), at(2, "a")]).unwrap();
    chain.note_read("a", 40);
    chain.note_read("unknown", 40);
    chain.save_cursors();
    assert_eq!(world.chain().cursor(START, "a").unwrap(), Some(40));
    assert_eq!(world.chain().cursor(START, "unknown").unwrap(), None);
    // A forged one is not believed.
    let cursors = world.folder().join("cursors.json");
    let text = fs::read_to_string(&cursors).unwrap().replace("40", "90");
    fs::write(&cursors, text).unwrap();
    assert_eq!(world.chain().cursor(START, "a").unwrap(), Some(2));
    fs::remove_file(&cursors).unwrap();
    assert_eq!(world.chain().cursor(START, "a").unwrap(), Some(2));
    world.check_whole(3);
}

#[test]
fn a_clock_that_goes_back_does_not_reorder_the_chain() {
    let world = TestChain::with_rows(20, 10);
    let mut chain = world.chain();
    chain.append(after_days(-5), &[at(21, "one")]).unwrap();
    chain.append(after_days(0), &[at(22, "one")]).unwrap();
    assert_eq!(fs::read_to_string(world.file(1)).unwrap().lines().count(), 12);
    world.check_whole(22);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_later_rows_follow() {
    let world = TestChain::new();
    let mut chain = world.chain();
    chain.append(START, &[first("a"), at(1, "a")]).unwrap();
    fs::rename(world.file(0), world.home.path().join("away")).unwrap();
    fs::create_dir(world.file(0)).unwrap();
    assert!(chain.append(START, &[at(2, "a")]).is_err());
    fs::remove_dir(world.file(0)).unwrap();
    fs::rename(world.home.path().join("away"), world.file(0)).unwrap();
    chain.append(START, &[at(2, "a"), at(3, "a")]).unwrap();
    assert_eq!(world.positions("a"), [0, 1, 2, 3]);
    world.check_whole(5);
}

#[test]
fn many_writers_at_once_make_one_chain() {
    let world = TestChain::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let world = &world;
            scope.spawn(move || {
                let mut chain = world.chain();
                let own = format!("own-{writer}");
                for seq in 1..=25 {
                    chain.append(START, &[first(&own), at(seq, &own), first("all"), at(seq, "all")]).unwrap();
                }
            });
        }
    });
    for session in ["own-0", "own-1", "own-2", "own-3", "all"] {
        assert_eq!(world.positions(session), (0..=25).collect::<Vec<_>>(), "{session}");
    }
    world.check_whole(1 + 5 * 26);
}

#[test]
fn a_truncated_file_under_a_running_writer_is_noticed() {
    let world = TestChain::with_rows(20, 20);
    let mut chain = world.chain();
    chain.append(START, &[at(21, "one")]).unwrap();
    let kept = lines(&world.file(0))[..10].iter().map(|line| line.len() as u64 + 1).sum();
    OpenOptions::new().write(true).open(world.file(0)).unwrap().set_len(kept).unwrap();
    chain.append(START, &[at(22, "one")]).unwrap();
    assert_eq!((world.verify().cut[0].expected_rows, world.verify().cut[0].found_rows), (21, 10));
}
