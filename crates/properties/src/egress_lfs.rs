//! A batch that is let through is one JSON object that asks to download, however it is read.

use ringfence_core::egress::wants_download_only;

pub fn holds(body: &[u8]) {
    if !wants_download_only(body) {
        return;
    }
    let value: serde_json::Value = serde_json::from_slice(body).expect("it is JSON");
    assert_eq!(value["operation"], "download");
    let text = std::str::from_utf8(body).expect("JSON is UTF-8");
    // A reader that takes the first of two names and one that takes the last would agree.
    #[derive(serde::Deserialize)]
    struct Any(#[serde(deserialize_with = "operations")] Vec<String>);
    let Any(named) = serde_json::from_str(text).expect("it reads again");
    assert_eq!(named, ["download"]);
}

fn operations<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    struct Names;
    impl<'de> serde::de::Visitor<'de> for Names {
        type Value = Vec<String>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                let value: serde_json::Value = map.next_value()?;
                if name == "operation" {
                    found.push(value.as_str().unwrap_or_default().to_owned());
                }
            }
            Ok(found)
        }
    }
    reader.deserialize_map(Names)
}
