//! Compares the generated pages of `docs/` with the tables in the code. With `FROND_WRITE_DOCS=1` it writes the
//! pages instead.

use std::path::Path;

fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name);
    if std::env::var_os("FROND_WRITE_DOCS").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/{name} is out of date: run FROND_WRITE_DOCS=1 cargo test --test all docs::"
    );
}

#[test]
fn the_page_on_compatibility_is_true() {
    check(
        "compatibility.md",
        &frond_server::reference::compatibility(),
    );
}

#[test]
fn the_page_on_mongodb_8_is_true() {
    check("mongodb-8.md", &frond_server::reference::mongodb_8());
}

#[test]
fn the_page_on_configuration_is_true() {
    check(
        "configuration.md",
        &frond_server::reference::configuration(),
    );
}
