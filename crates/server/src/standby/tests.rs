#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_directory_remembers_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::new(folder.path());
    assert_eq!(directory.state().unwrap(), DirectoryState::Own);
    for state in [
        DirectoryState::Copying,
        DirectoryState::Following,
        DirectoryState::Promoted,
    ] {
        directory.set(state).unwrap();
        assert_eq!(directory.state().unwrap(), state);
    }
    std::fs::write(folder.path().join("standby.state"), "nonsense").unwrap();
    assert!(directory.state().is_err());
    assert!(!directory.has_store());
    for name in ["data.frond", "log-0000000000000000.frond", "mongod.lock"] {
        std::fs::write(folder.path().join(name), "x").unwrap();
    }
    assert!(directory.has_store());
    directory.clear().unwrap();
    assert!(!directory.has_store());
    assert!(folder.path().join("mongod.lock").exists());
}

#[test]
fn what_is_final_stays_but_for_a_step_up() {
    let standby = Standby::new("mongodb://user:secret@127.0.0.1:1/").unwrap();
    assert!(!standby.source.contains("secret"), "{}", standby.source);
    assert_eq!(standby.set_phase(Phase::Following), Phase::Connecting);
    standby.set_phase(Phase::Stale);
    standby.set_phase(Phase::Connecting);
    assert_eq!(standby.phase(), Phase::Stale);
    standby.set_phase(Phase::SteppingUp);
    standby.set_phase(Phase::Failed);
    assert_eq!(standby.phase(), Phase::SteppingUp);
    assert!(standby.note_error("x") && !standby.note_error("x"));
}
