//! Where operations wait for their outcome.
//!
//! Promise: an operation is on disk before its first byte is sent, and until its outcome is known.
//! A client that is killed in between finds it again, with its key. What can't be read is reported,
//! never skipped: it may be a charge. API keys are not kept here.

use std::{
    fmt, fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::keyed_request::{KeyedRequest, abandoned_by};

/// Ends the names of files that hold an operation.
const EXTENSION: &str = "operation";

/// What the files are written as. Another layout needs another number.
const VERSION: u32 = 1;

/// The layout with a method in it. A client that knows only POST must not read these: it would send
/// a POST.
const VERSION_WITH_METHOD: u32 = 2;

/// A durable memory of operations whose outcome isn't known. One store is for one account: keys
/// belong to accounts, and a store doesn't know whose API key will resume it.
///
/// Functions block; the client calls them where that is allowed.
pub trait KeyStore: fmt::Debug + Send + Sync {
    /// Returns once the operation would survive a power failure. If there is one with this key, and
    /// it is the same request, that one stays and is returned: it is older, and age decides how
    /// long it may be sent again.
    fn save(&self, operation: &KeyedRequest) -> Result<Saved, KeyStoreError>;

    /// Forgets an operation whose outcome is known; it is no error if there is none.
    fn remove(&self, key: &str) -> Result<(), KeyStoreError>;

    /// Everything that is kept, oldest first, and what can't be read.
    fn unfinished(&self) -> Result<Vec<Kept>, KeyStoreError>;
}

/// What [`KeyStore::save`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saved {
    /// It is new: no process has sent it.
    New,
    /// This one was there before, and may have been sent.
    Found(KeyedRequest),
}

/// One entry of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// An operation whose outcome isn't known.
    Request(KeyedRequest),
    /// Something that can't be read. It may have been an operation: a person must look.
    Corrupt {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Kept {
    pub(super) fn key(&self) -> Option<String> {
        match self {
            Self::Request(operation) => Some(operation.key.clone()),
            Self::Corrupt { .. } => None,
        }
    }

    /// The key of what gives this operation's key up.
    pub(super) fn abandonment_key(&self) -> Option<String> {
        self.key().map(|key| abandoned_by(&key))
    }
}

/// The store can't be used as asked.
#[derive(Debug, thiserror::Error)]
pub enum KeyStoreError {
    /// The operating system says no.
    #[error("the key store at {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is an operation with this key, and it is another request.
    #[error("the key store has another request under this key")]
    OtherRequest,
    /// There is something under this key that can't be read.
    #[error("the key store has a file that can't be read: {place}: {reason}")]
    Corrupt {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A folder with one file for each operation, readable by its owner only. Several processes may
/// share it; its file system must support fsync and hard links.
#[derive(Debug, Clone)]
pub struct FileKeyStore {
    folder: PathBuf,
}

/// The first line of a file; the second is its SHA-256.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    version: u32,
    #[serde(flatten)]
    operation: T,
}

impl FileKeyStore {
    /// Uses `folder`, and makes it if there is none.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, KeyStoreError> {
        let folder = folder.into();
        if !folder.is_dir() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(at(&folder))?;
            // The folder's own name must survive, too.
            let parent = match folder.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                Some(_) | None => Path::new("."),
            };
            sync_folder(parent)?;
        }
        Ok(Self { folder })
    }

    /// A key may hold `/`, and be longer than a file name; its hash is neither.
    fn file(&self, key: &str) -> PathBuf {
        let name = hex::encode(Sha256::digest(key));
        self.folder.join(name).with_extension(EXTENSION)
    }

    fn read(&self, file: &Path) -> Result<Option<Kept>, KeyStoreError> {
        let corrupt = |reason: &str| Kept::Corrupt {
            place: file.display().to_string(),
            reason: reason.to_owned(),
        };
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            // Another process has just finished it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(file)(error)),
        };
        Ok(Some(match parse(&bytes) {
            Ok(operation) if self.file(&operation.key) == file => Kept::Request(operation),
            Ok(_) => corrupt("its name belongs to another key"),
            Err(reason) => corrupt(reason),
        }))
    }
}

impl KeyStore for FileKeyStore {
    fn save(&self, operation: &KeyedRequest) -> Result<Saved, KeyStoreError> {
        let file = self.file(&operation.key);
        let draft = self.folder.join(format!(".{}.draft", Uuid::new_v4()));
        if let Err(error) = write_durably(&draft, &written(operation)) {
            // Half a draft is no operation. What couldn't be written may not be removable either.
            let _ = fs::remove_file(&draft);
            return Err(error);
        }
        // A link, not a rename: it never replaces what another process has put there. The file has
        // its whole content before it has its name, and its name is on disk before this returns.
        let linked = fs::hard_link(&draft, &file);
        fs::remove_file(&draft).map_err(at(&draft))?;
        match linked {
            Ok(()) => {
                sync_folder(&self.folder)?;
                Ok(Saved::New)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = self.read(&file)?;
                // Its writer may not have synced the folder yet.
                sync_folder(&self.folder)?;
                match found {
                    Some(Kept::Request(found)) if found.asks_the_same_as(operation) => {
                        Ok(Saved::Found(found))
                    }
                    Some(Kept::Request(_)) => Err(KeyStoreError::OtherRequest),
                    Some(Kept::Corrupt { place, reason }) => {
                        Err(KeyStoreError::Corrupt { place, reason })
                    }
                    // Finished by another process a moment ago.
                    None => self.save(operation),
                }
            }
            Err(error) => Err(at(&file)(error)),
        }
    }

    fn remove(&self, key: &str) -> Result<(), KeyStoreError> {
        let file = self.file(key);
        match fs::remove_file(&file) {
            // Not synced: an operation that comes back after a power failure is sent once more, and
            // answered by its record.
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(at(&file)(error)),
        }
    }

    fn unfinished(&self) -> Result<Vec<Kept>, KeyStoreError> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(at(&self.folder))? {
            let file = entry.map_err(at(&self.folder))?.path();
            // A draft that a crash left behind was never sent.
            if file.extension().is_some_and(|ending| ending == EXTENSION) {
                kept.extend(self.read(&file)?);
            }
        }
        kept.sort_by_key(|kept| match kept {
            Kept::Request(operation) => operation.created_at,
            Kept::Corrupt { .. } => 0,
        });
        Ok(kept)
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> KeyStoreError {
    move |error| KeyStoreError::Io {
        path: path.to_owned(),
        error,
    }
}

fn write_durably(file: &Path, text: &str) -> Result<(), KeyStoreError> {
    let mut open = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        // Other users have no business with what is bought.
        .mode(0o600)
        .open(file)
        .map_err(at(file))?;
    open.write_all(text.as_bytes())
        .and_then(|()| open.sync_all())
        .map_err(at(file))
}

fn sync_folder(folder: &Path) -> Result<(), KeyStoreError> {
    fs::File::open(folder)
        .and_then(|open| open.sync_all())
        .map_err(at(folder))
}

fn version(operation: &KeyedRequest) -> u32 {
    if operation.method.is_post() {
        VERSION
    } else {
        VERSION_WITH_METHOD
    }
}

fn written(operation: &KeyedRequest) -> String {
    let line = Line {
        version: version(operation),
        operation,
    };
    // Text and numbers always serialize. If they did not, the empty line would be refused on
    // reading.
    let line = serde_json::to_string(&line).unwrap_or_default();
    format!("{line}\n{}\n", hex::encode(Sha256::digest(&line)))
}

fn parse(bytes: &[u8]) -> Result<KeyedRequest, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
    let (line, sum) = text.split_once('\n').ok_or("it has no end")?;
    if sum.trim_end() != hex::encode(Sha256::digest(line)) {
        return Err("its check sum is wrong");
    }
    let line: Line<KeyedRequest> = serde_json::from_str(line).map_err(|_| "it is no operation")?;
    if line.version != version(&line.operation) {
        return Err("another version wrote it");
    }
    Ok(line.operation)
}
