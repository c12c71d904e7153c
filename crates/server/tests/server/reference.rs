//! What is published is what the code says.

use std::path::Path;

/// Compares a file with what it should be; `STATEHOLD_WRITE=1` writes it instead.
fn compare(path: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("STATEHOLD_WRITE").is_some() {
        std::fs::create_dir_all(path.parent().expect("good")).expect("good");
        std::fs::write(&path, wanted).expect("good");
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(is == wanted, "{} is out of date; write it with STATEHOLD_WRITE=1", path.display());
}

#[test]
fn the_checked_in_description_is_the_generated_one() {
    compare("api/openapi.json", &statehold_server::openapi());
}

#[test]
fn the_published_table_of_roles_is_the_generated_one() {
    let page = format!(
        "# Roles\n\n\
         Which role may use which route. It is generated from the router: a route cannot be registered without its rule.\n\
         \"as itself\" means that the owner is the token's own agent; \"through its lease\" that the request is fenced by\n\
         the lease of a task; \"command by command\" that each command of a batch is judged by the rule of its own route.\n\n{}",
        statehold_server::roles()
    );
    compare("docs/roles.md", &page);
}

#[test]
fn every_reference_in_the_description_leads_somewhere() {
    let api: serde_json::Value = serde_json::from_str(&statehold_server::openapi()).expect("good");
    assert_eq!(api["openapi"], "3.1.0");
    let text = api.to_string();
    let schemas = api["components"]["schemas"].as_object().expect("good");
    for name in text.split("#/components/schemas/").skip(1) {
        let name = name.split('"').next().expect("good");
        assert!(schemas.contains_key(name), "{name} is not described");
    }
}
