use std::fs;

use crate::chat::world::World;

#[test]
fn lines_are_prompts_and_answers_go_to_standard_output() {
    let world = World::new();
    let (code, out, err) = world.pipe(&["chat", "--alone"], "read README.md\nwhat did I say?\n");
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("# A net") && out.contains("read README.md"), "{out}");
    assert!(err.contains("• ") && err.matches("done in").count() == 2, "{err}");
    assert!(!out.contains("done in"), "{out}");
}

#[test]
fn without_anybody_what_needs_a_person_is_refused() {
    let world = World::new();
    let (code, _, err) = world.pipe(&["chat", "--alone", "--approval", "suggest", "write a.txt: x"], "");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("denied, because nobody can be asked here"), "{err}");
    assert!(!world.path("project/a.txt").exists());
}

#[test]
fn the_exit_code_says_how_the_last_turn_ended() {
    let world = World::new();
    let (code, _, err) = world.pipe(&["chat", "--alone", "fail"], "");
    assert_eq!(code, 1, "{err}");
    let (code, _, err) = world.pipe(&["chat", "--alone", "--resume", "zzzz"], "");
    assert_eq!(code, 5, "{err}");
    let (code, _, err) = world.pipe(&["chat", "--alone", "--mode", "nonsense", "list"], "");
    assert_eq!(code, 1, "{err}");
}

#[test]
fn a_server_that_runs_is_used_line_by_line_too() {
    let world = World::new();
    let _server = world.serve(0);
    let (code, out, err) = world.pipe(&["chat"], "read README.md\n");
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("# A net"), "{out}");
    let (code, out, err) = world.pipe(&["chat", "-c"], "what did I say?\n");
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("read README.md"), "{out}");
}

#[test]
fn a_server_with_a_certificate_is_spoken_to_over_tls() {
    let world = World::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (world.path("cert.pem"), world.path("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let _server = world.serve_with(0, &["--tls-cert", files[0], "--tls-key", files[1]]);
    let (code, out, err) = world.pipe(&["chat"], "read README.md\n");
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("# A net"), "{out}");
}
