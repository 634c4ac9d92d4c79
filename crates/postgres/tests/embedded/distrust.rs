//! What another user has prepared is refused, and no link leads out of the data directory.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;

use charge_once_postgres::embedded::Problem;
use nix::unistd::geteuid;

use super::{Outcome, Scratch, mode_of, socket_dir_of};

/// A user that is neither this process's nor root.
const ANOTHER_USER: u32 = 54_321;

fn create_with_mode(folder: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(mode))
}

/// Expects that the start is refused because of `folder`, and that nothing was put into the data
/// directory.
async fn assert_untrusted(scratch: &Scratch, folder: &Path) -> Outcome {
    let error = scratch.refusal(&["DATA_DIR"]).await?;
    assert!(
        matches!(error.problem(), Problem::Untrusted { folder: found, .. } if found == folder),
        "{error}"
    );
    assert!(!scratch.data_dir.join("owner.lock").exists());
    Ok(())
}

#[tokio::test]
async fn a_folder_that_others_may_write_to_is_refused() -> Outcome {
    for mode in [0o777, 0o1777, 0o702] {
        let scratch = Scratch::new()?;
        create_with_mode(&scratch.data_dir, mode)?;
        assert_untrusted(&scratch, &scratch.data_dir).await?;
    }
    for data_dir in ["data", "missing/data"] {
        let scratch = Scratch::with_data_in(&format!("shared/{data_dir}"))?;
        let shared = scratch.parent.path().join("shared");
        create_with_mode(&shared, 0o777)?;
        assert_untrusted(&scratch, &shared).await?;
    }
    Ok(())
}

#[tokio::test]
async fn as_root_a_folder_or_link_of_another_user_is_refused() -> Outcome {
    if !geteuid().is_root() {
        return Ok(());
    }
    let give_away = |path: &Path| lchown(path, Some(ANOTHER_USER), Some(ANOTHER_USER));
    let scratch = Scratch::new()?;
    std::fs::create_dir_all(scratch.cluster())?;
    give_away(&scratch.data_dir)?;
    give_away(&scratch.cluster())?;
    assert_untrusted(&scratch, &scratch.data_dir).await?;

    let scratch = Scratch::with_data_in("home/data")?;
    let home = scratch.parent.path().join("home");
    std::fs::create_dir(&home)?;
    give_away(&home)?;
    assert_untrusted(&scratch, &home).await?;

    // A link of root's own, to one of another user, to a folder of root's.
    let scratch = Scratch::new()?;
    let [target, link] = ["target", "link"].map(|name| scratch.parent.path().join(name));
    std::fs::create_dir(&target)?;
    symlink(&target, &link)?;
    symlink("link", &scratch.data_dir)?;
    scratch.start().await?.stop().await?;
    give_away(&link)?;
    let error = scratch.refusal(&[]).await?;
    assert!(
        matches!(error.problem(), Problem::Untrusted { folder, .. } if *folder == link),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn no_link_in_the_data_directory_is_followed() -> Outcome {
    for name in ["owner.lock", "postgres.log", "run", "pgdata"] {
        let scratch = Scratch::new()?;
        let victim = scratch.parent.path().join("victim");
        std::fs::create_dir(&scratch.data_dir)?;
        if ["run", "pgdata"].contains(&name) {
            create_with_mode(&victim, 0o750)?;
        }
        symlink(&victim, scratch.data_dir.join(name))?;
        scratch.refusal(&[name]).await?;
        if let Ok(found) = std::fs::metadata(&victim) {
            assert_eq!(found.mode() & 0o777, 0o750, "{name}");
            assert_eq!(found.uid(), geteuid().as_raw(), "{name}");
            assert_eq!(std::fs::read_dir(&victim)?.count(), 0, "{name}");
        } else {
            assert!(!victim.exists(), "{name} made it");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_link_named_like_a_leftover_is_removed_and_its_target_is_not() -> Outcome {
    let scratch = Scratch::new()?;
    let victim = scratch.parent.path().join("victim");
    std::fs::create_dir(&victim)?;
    std::fs::write(victim.join("kept"), "")?;
    std::fs::create_dir(&scratch.data_dir)?;
    let link = scratch.data_dir.join("pgdata.new-1700000000");
    symlink(&victim, &link)?;
    scratch.start().await?.stop().await?;
    assert!(link.symlink_metadata().is_err());
    assert!(victim.join("kept").exists());
    Ok(())
}

#[tokio::test]
async fn files_that_postgres_could_replace_by_links_are_not_read_through_them() -> Outcome {
    let scratch = Scratch::used().await?;
    let secret = scratch.parent.path().join("secret");
    std::fs::write(&secret, "the-secret-of-root\n")?;
    let version = scratch.cluster().join("PG_VERSION");
    std::fs::remove_file(&version)?;
    symlink(&secret, &version)?;
    let error = scratch.refusal(&[]).await?;
    assert!(!error.to_string().contains("the-secret"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_link_in_place_of_the_socket_folder_in_tmp_is_refused() -> Outcome {
    let scratch = Scratch::with_long_path()?;
    let postgres = scratch.start().await?;
    let socket_dir = socket_dir_of(&postgres).ok_or("no socket")?;
    postgres.stop().await?;

    let victim = scratch.parent.path().join("victim");
    create_with_mode(&victim, 0o750)?;
    std::fs::write(victim.join(".s.PGSQL.5432"), "")?;
    symlink(&victim, &socket_dir)?;
    let refused = scratch.refusal(&[]).await;
    std::fs::remove_file(&socket_dir)?;
    let error = refused?;
    let problem = error.problem();
    assert!(matches!(problem, Problem::SocketDirectory(_)), "{error}");
    assert_eq!(mode_of(&victim)?, 0o750);
    assert!(victim.join(".s.PGSQL.5432").exists());
    Ok(())
}
