//! What is mirrored: made once, with the tools that make such things.

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The one package of each registry.
pub const PACKAGE: &str = "tinypackage";
/// What it holds and says.
pub const PACKAGE_TEXT: &str = "tiny-and-from-the-mirror";
/// `README` of `acme/widget` on its default branch, and on the branch `side`.
pub const README: &str = "the widget\n";
pub const SIDE_README: &str = "the widget, on the side\n";
/// The large file of `acme/large`.
pub const LFS_TEXT: &str = "a large file, all of it\n";

pub struct Content {
    pub git_root: PathBuf,
    /// By SHA-256.
    pub large_files: BTreeMap<String, Vec<u8>>,
    pub npm_archive: Vec<u8>,
    pub crate_archive: Vec<u8>,
    pub wheel: Vec<u8>,
}

impl Content {
    pub fn make(top: &Path) -> Result<Self> {
        let large = LFS_TEXT.as_bytes().to_vec();
        Ok(Self {
            git_root: repositories(top)?,
            large_files: BTreeMap::from([(hex::encode(Sha256::digest(&large)), large)]),
            npm_archive: npm(top)?,
            crate_archive: krate(top)?,
            wheel: wheel(top)?,
        })
    }

    pub fn crate_sha256(&self) -> String {
        hex::encode(Sha256::digest(&self.crate_archive))
    }
}

fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

fn git(at: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    run(Command::new("git")
        .args(["-c", "user.name=Mirror", "-c", "user.email=mirror@example.invalid"])
        .args(["-c", "init.defaultBranch=main", "-c", "core.hooksPath=/dev/null"])
        .args(arguments)
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1"))
}

fn repositories(top: &Path) -> Result<PathBuf> {
    let root = top.join("git");
    let widget = source(top, "widget", &[("README", README), ("sub/dir/file", "deep\n")])?;
    git(&widget, &["tag", "v1"])?;
    git(&widget, &["checkout", "-q", "-b", "side"])?;
    fs::write(widget.join("README"), SIDE_README)?;
    git(&widget, &["commit", "-q", "-a", "-m", "Aside"])?;
    git(&widget, &["checkout", "-q", "main"])?;
    publish(&root, &widget, "acme/widget")?;
    publish(&root, &widget, "acme/held")?;
    let other = source(top, "other", &[("README", "another's\n")])?;
    publish(&root, &other, "acme/other")?;
    // Nobody is granted this one.
    publish(&root, &other, "acme/untold")?;
    // The large file as git sees it: a pointer, checked in without the filter.
    let oid = hex::encode(Sha256::digest(LFS_TEXT));
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {}\n", LFS_TEXT.len());
    let attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n";
    let large = source(top, "large", &[("large.bin", &pointer), (".gitattributes", attributes)])?;
    publish(&root, &large, "acme/large")?;
    publish(&root, &large, "acme/upload")?;
    Ok(root)
}

fn source(top: &Path, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
    let at = top.join("sources").join(name);
    fs::create_dir_all(&at)?;
    git(&at, &["init", "-q"])?;
    for (path, text) in files {
        let path = at.join(path);
        fs::create_dir_all(path.parent().context("it lies in the repository")?)?;
        fs::write(path, text)?;
    }
    // An installed git-lfs would take its files' place: what is given is what is checked in.
    git(&at, &["-c", "filter.lfs.clean=cat", "-c", "filter.lfs.process=", "add", "."])?;
    git(&at, &["commit", "-q", "-m", "Begin"])?;
    Ok(at)
}

/// A bare copy that takes pushes from anyone.
fn publish(root: &Path, source: &Path, name: &str) -> Result<()> {
    let bare = root.join(format!("{name}.git"));
    fs::create_dir_all(&bare)?;
    let from = source.to_str().context("a path of text")?;
    git(&bare, &["clone", "-q", "--bare", "--template=", from, "."])?;
    git(&bare, &["config", "http.receivepack", "true"])?;
    git(&bare, &["config", "uploadpack.allowAnySHA1InWant", "true"])?;
    Ok(())
}

fn npm(top: &Path) -> Result<Vec<u8>> {
    let at = top.join("npm/package");
    fs::create_dir_all(&at)?;
    fs::write(
        at.join("package.json"),
        format!(r#"{{"name":"{PACKAGE}","version":"1.0.0","main":"index.js"}}"#),
    )?;
    fs::write(at.join("index.js"), format!("module.exports = '{PACKAGE_TEXT}';\n"))?;
    run(Command::new("tar").args(["-czf", "-", "package"]).current_dir(top.join("npm")))
}

fn krate(top: &Path) -> Result<Vec<u8>> {
    let name = format!("{PACKAGE}-1.0.0");
    let at = top.join("crate").join(&name);
    fs::create_dir_all(at.join("src"))?;
    let manifest = format!("[package]\nname = \"{PACKAGE}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n");
    fs::write(at.join("Cargo.toml"), manifest)?;
    fs::write(at.join("src/lib.rs"), format!("pub const TEXT: &str = \"{PACKAGE_TEXT}\";\n"))?;
    run(Command::new("tar").args(["-czf", "-", &name]).current_dir(top.join("crate")))
}

/// A wheel is a zip file with its own record; python makes zip files.
fn wheel(top: &Path) -> Result<Vec<u8>> {
    let script = format!(
        "import zipfile, sys\n\
         z = zipfile.ZipFile(sys.argv[1], 'w')\n\
         d = '{PACKAGE}-1.0.0.dist-info/'\n\
         files = {{'{PACKAGE}.py': 'TEXT = \"{PACKAGE_TEXT}\"\\n',\n\
           d + 'METADATA': 'Metadata-Version: 2.1\\nName: {PACKAGE}\\nVersion: 1.0.0\\n',\n\
           d + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: mirror\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'}}\n\
         files[d + 'RECORD'] = ''.join(n + ',,\\n' for n in list(files) + [d + 'RECORD'])\n\
         [z.writestr(n, t) for n, t in files.items()]\n\
         z.close()\n"
    );
    let path = top.join("wheel.zip");
    run(Command::new("python3").arg("-c").arg(script).arg(&path))?;
    Ok(fs::read(path)?)
}
