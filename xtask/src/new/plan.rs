//! The parts of a skeleton: new files from templates, insertions into existing files, and the remaining steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::ExtensionKind;
use super::edit::{insert_after, insert_before, insert_line, insert_variant, insert_word};
use super::name::ExtensionName;
use super::write::Changes;

/// A file of a skeleton: its path, and its template.
type TemplateFile = (&'static str, &'static str);

const PLATFORM_FILES: [TemplateFile; 7] = [
    (
        "crates/dray-platform-@name@/Cargo.toml",
        include_str!("templates/platform/Cargo.toml.tmpl"),
    ),
    (
        "crates/dray-platform-@name@/src/lib.rs",
        include_str!("templates/platform/lib.rs.tmpl"),
    ),
    (
        "crates/dray-platform-@name@/src/options.rs",
        include_str!("templates/platform/options.rs.tmpl"),
    ),
    (
        "crates/dray-platform-@name@/src/send.rs",
        include_str!("templates/platform/send.rs.tmpl"),
    ),
    (
        "crates/dray-platform-@name@/src/fake_server.rs",
        include_str!("templates/platform/fake_server.rs.tmpl"),
    ),
    (
        "crates/dray-platform-@name@/src/tests.rs",
        include_str!("templates/platform/tests.rs.tmpl"),
    ),
    (
        "docs/platforms/@name@.md",
        include_str!("templates/platform/page.md.tmpl"),
    ),
];

const BACKEND_FILES: [TemplateFile; 5] = [
    (
        "crates/dray-sandbox-@name@/Cargo.toml",
        include_str!("templates/backend/Cargo.toml.tmpl"),
    ),
    (
        "crates/dray-sandbox-@name@/src/lib.rs",
        include_str!("templates/backend/lib.rs.tmpl"),
    ),
    (
        "crates/dray-sandbox-@name@/src/config.rs",
        include_str!("templates/backend/config.rs.tmpl"),
    ),
    (
        "crates/dray-sandbox-@name@/src/tests.rs",
        include_str!("templates/backend/tests.rs.tmpl"),
    ),
    (
        "docs/backends/@name@.md",
        include_str!("templates/backend/page.md.tmpl"),
    ),
];

const TOOL_FILES: [TemplateFile; 5] = [
    (
        "crates/dray-tool-@name@/Cargo.toml",
        include_str!("templates/tool/Cargo.toml.tmpl"),
    ),
    (
        "crates/dray-tool-@name@/src/lib.rs",
        include_str!("templates/tool/lib.rs.tmpl"),
    ),
    (
        "crates/dray-tool-@name@/src/tool.rs",
        include_str!("templates/tool/tool.rs.tmpl"),
    ),
    (
        "crates/dray-tool-@name@/src/tests.rs",
        include_str!("templates/tool/tests.rs.tmpl"),
    ),
    (
        "docs/@name@-tools.md",
        include_str!("templates/tool/page.md.tmpl"),
    ),
];

const FORMAT_FILES: [TemplateFile; 3] = [
    (
        "crates/dray-documents/src/formats/@snake@.rs",
        include_str!("templates/format/family.rs.tmpl"),
    ),
    (
        "docs/documents/@name@.md",
        include_str!("templates/format/page.md.tmpl"),
    ),
    (
        "fuzz/corpus/any_document/@name@",
        include_str!("templates/format/seed.tmpl"),
    ),
];

const PLATFORM_STEPS: [&str; 6] = [
    "Run `cargo xtask generate`: the name is new in the contracts, the subjects, the accounts and the configuration.",
    "Replace the wire in `crates/dray-platform-@name@/src/send.rs`, and the fake server in `fake_server.rs` with one that \
     speaks the new wire. The suite in `tests.rs` stays and passes.",
    "Read messages in where the platform has any: `webhook`, or `poll`, and `fetch`.",
    "Prove the fake server with the vendor's own client, as `tests/python/slack_client.py` does.",
    "Add the fake server to `tests/transfer/platforms.rs`; a test fails until it is there.",
    "Finish `docs/platforms/@name@.md`, and add a line to CHANGELOG.md.",
];

const BACKEND_STEPS: [&str; 5] = [
    "Run `cargo xtask generate`: the name is new in the contracts and the configuration.",
    "Replace the command line in `crates/dray-sandbox-@name@/src/lib.rs` with the connection to the sandboxes. The suite in \
     `tests.rs` stays and passes.",
    "Replace the fake program by a fake server if the backend uses a network, and prove it with the vendor's own client, \
     as `tests/python/e2b_client.py` does.",
    "Add the kind to `BackendKind::is_default` only when it can be used without a key or a cluster.",
    "Finish `docs/backends/@name@.md`, and add a line to CHANGELOG.md.",
];

const TOOL_STEPS: [&str; 4] = [
    "Replace the echo in `crates/dray-tool-@name@/src/tool.rs` with the tool. What it needs of DIAL is in \
     `dray_dial::DialPort`, and `dray_dial::fake::FakeDial` replaces it in tests.",
    "Give the tool set its fields in `dray_agent::manifest::toolset`, and the tools what they need of a turn in \
     `crates/dray-orchestrator/src/turn/setup.rs`.",
    "Check the addresses of the tool set in `crates/dray-orchestrator/src/permissions/manifest.rs` when it has any.",
    "Run `cargo xtask generate`, finish `docs/@name@-tools.md` and the row in `docs/manifest.md`, and add a line to \
     CHANGELOG.md.",
];

const FORMAT_STEPS: [&str; 5] = [
    "Give the media type a signature of bytes in `crates/dray-media-type/src/kind/signature.rs`; or \
     give the extension of a text a row in `crates/dray-media-type/src/table.rs`.",
    "Replace the converter in `crates/dray-documents/src/formats/@snake@.rs`. Every loop counts into the budget.",
    "Raise `VERSION` in `crates/dray-documents/src/formats/mod.rs` when the converter gives other text for files that \
     were converted before.",
    "Replace the content of `fuzz/corpus/any_document/@name@` after its first line and the byte that chooses limits, add a \
     fuzz target in `fuzz/` for the parts of a packed format, and honest and hostile files to `tests/documents`.",
    "Finish `docs/documents/@name@.md`, and add a line to CHANGELOG.md.",
];

/// The manual steps after the skeleton was written, in order.
pub(super) fn remaining_steps(kind: ExtensionKind, name: &str) -> Vec<String> {
    let steps: &[&str] = match kind {
        ExtensionKind::Platform => &PLATFORM_STEPS,
        ExtensionKind::Backend => &BACKEND_STEPS,
        ExtensionKind::Tool => &TOOL_STEPS,
        ExtensionKind::Format => &FORMAT_STEPS,
    };
    let snake = name.replace('-', "_");
    let fill = |step: &&str| step.replace("@name@", name).replace("@snake@", &snake);
    steps.iter().map(fill).collect()
}

/// Every file of the skeleton with its content. Does not write files.
///
/// # Errors
///
/// When the name is in use, or a file to extend no longer has the anchor for it.
pub(super) fn skeleton(
    root: &Path,
    kind: ExtensionKind,
    name: &ExtensionName,
) -> anyhow::Result<Changes> {
    let mut tree = SkeletonTree {
        root,
        name,
        changes: BTreeMap::new(),
    };
    match kind {
        ExtensionKind::Platform => platform(&mut tree)?,
        ExtensionKind::Backend => backend(&mut tree)?,
        ExtensionKind::Tool => tool(&mut tree)?,
        ExtensionKind::Format => format(&mut tree)?,
    }
    Ok(tree.changes)
}

/// The files of a workspace with the additions of a skeleton.
struct SkeletonTree<'a> {
    root: &'a Path,
    name: &'a ExtensionName,
    changes: Changes,
}

impl SkeletonTree<'_> {
    /// Creates files from templates.
    fn create(&mut self, files: &[TemplateFile]) -> anyhow::Result<()> {
        for (path, template) in files {
            let path = self.name.fill(path);
            if self.root.join(&path).exists() {
                bail!("the name is taken: {path} exists");
            }
            self.changes.insert(path, self.name.fill(template));
        }
        Ok(())
    }

    /// Extends an existing file; `edit` gets its text, and `fill` for the added text.
    fn edit(
        &mut self,
        path: &str,
        edit: impl FnOnce(&str, &dyn Fn(&str) -> String) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let text = match self.changes.remove(path) {
            Some(text) => text,
            None => fs::read_to_string(self.root.join(path))
                .with_context(|| format!("cannot read {path}"))?,
        };
        let fill = |template: &str| self.name.fill(template);
        let edited = edit(&text, &fill).with_context(|| format!("cannot extend {path}"))?;
        self.changes.insert(path.to_owned(), edited);
        Ok(())
    }

    /// Adds a crate to the workspace, and to the dependencies of the crate that collects its kind.
    fn add_crate(&mut self, prefix: &str, host: &str, edges: &str) -> anyhow::Result<()> {
        self.edit("Cargo.toml", |text, fill| {
            let line = fill(&format!(
                "{prefix}@name@ = {{ path = \"crates/{prefix}@name@\" }}"
            ));
            // Lines of build profiles begin with the names of crates, too, and end with a number.
            insert_line(text, prefix, "\" }", &line)
        })?;
        self.edit(&format!("crates/{host}/Cargo.toml"), |text, fill| {
            insert_line(
                text,
                prefix,
                ".workspace = true",
                &fill(&format!("{prefix}@name@.workspace = true")),
            )
        })?;
        self.edit("xtask/src/tidy/edges.rs", |text, fill| {
            insert_word(
                text,
                &format!("const {edges}: CrateKind = CrateKind {{"),
                &fill("@name@"),
            )
        })
    }

    /// Adds the name to a list of kinds, and to the contract's comment on it.
    fn add_kind(&mut self, list: &str, about: &str, contract: &str) -> anyhow::Result<()> {
        self.edit("crates/dray-types/src/kind.rs", |text, fill| {
            let entry = fill(&format!(
                "        /// {about}\n        @Name@ = \"@name@\","
            ));
            insert_variant(
                text,
                &format!("pub enum {list} {{"),
                &fill("@name@"),
                &entry,
            )
        })?;
        self.edit("proto/dray/v1/session.proto", |text, fill| {
            insert_before(text, contract, &fill("`@name@`, "))
        })
    }
}

fn platform(tree: &mut SkeletonTree<'_>) -> anyhow::Result<()> {
    tree.create(&PLATFORM_FILES)?;
    tree.add_crate(
        "dray-platform-",
        "dray-platform-delivery",
        "PLATFORM_CRATES",
    )?;
    tree.add_kind("PlatformKind", "Chats of @Name@.", "`telegram`, `discord`")?;
    tree.edit(
        "crates/dray-platform-delivery/src/account_config.rs",
        |text, fill| {
            let line = fill(
                "    /// An account of @Name@.\n    @name@: dray_platform_@name@::@Name@Options,\n",
            );
            insert_after(
                text,
                "    slack: dray_platform_slack::SlackOptions,\n",
                &line,
            )
        },
    )
}

fn backend(tree: &mut SkeletonTree<'_>) -> anyhow::Result<()> {
    tree.create(&BACKEND_FILES)?;
    tree.add_crate("dray-sandbox-", "dray-sandbox-transfer", "BACKEND_CRATES")?;
    tree.add_kind(
        "BackendKind",
        "Sandboxes of @Name@.",
        "`local`, `docker`, `ssh`",
    )?;
    tree.edit("crates/dray-sandbox-transfer/src/config.rs", |text, fill| {
        let text = insert_before(text, ", which need credentials", &fill(", `@name@`"))?;
        let field = "    /// Sandboxes of @Name@.\n    pub @name@: dray_sandbox_@name@::Config,\n";
        let text = insert_after(&text, "    pub exec: BTreeMap<String, CommandConfig>,\n", &fill(field))?;
        let default = "            @name@: dray_sandbox_@name@::Config::default(),\n";
        let text = insert_after(&text, "            exec: BTreeMap::new(),\n", &fill(default))?;
        let arm = "            BackendKind::@Name@ => Arc::new(dray_sandbox_@name@::@Name@Backend::new(self.@name@.clone())),\n";
        let text = insert_before(&text, "            BackendKind::Local => Arc::new", &fill(arm))?;
        let arm = "            BackendKind::@Name@ => self.@name@ == other.@name@,\n";
        insert_before(&text, "            BackendKind::Local => self", &fill(arm))
    })
}

fn tool(tree: &mut SkeletonTree<'_>) -> anyhow::Result<()> {
    const TOOL_SET: &str = "/// Tools of the kind `@name@`.\n\
        #[derive(Clone, Debug, Deserialize, JsonSchema)]\n\
        pub struct @Name@Set {\n\
        /// Prefix of the tools' names.\n\
        pub name: String,\n\
        /// The fields that all tool sets have.\n\
        #[serde(flatten)]\n\
        pub common: Common,\n\
        }\n\n";
    tree.create(&TOOL_FILES)?;
    tree.add_crate("dray-tool-", "dray-orchestrator", "TOOL_CRATES")?;
    tree.edit("crates/dray-agent/src/manifest/toolset.rs", |text, fill| {
        let variant = fill("    /// Tools of the kind `@name@`.\n    @Name@(@Name@Set),\n");
        let text = insert_after(text, "    DialApp(DialApp),\n", &variant)?;
        insert_before(&text, "fn untitled_name()", &fill(TOOL_SET))
    })?;
    tree.edit("crates/dray-agent/src/layer/resolve.rs", |text, fill| {
        let arm = fill("            Self::@Name@(set) => set.common.enabled,\n");
        let text = insert_before(text, "            Self::DialApp(set) =>", &arm)?;
        let arm = fill("            | ToolSet::@Name@(_)\n");
        insert_before(&text, "            | ToolSet::Predefined(_) => {}", &arm)
    })?;
    add_tool_to_orchestrator(tree)?;
    tree.edit("docs/manifest.md", |text, fill| {
        insert_before(
            text,
            "| `predefined` | `template_name`",
            &fill("| `@name@` | none |\n"),
        )
    })
}

fn add_tool_to_orchestrator(tree: &mut SkeletonTree<'_>) -> anyhow::Result<()> {
    tree.edit(
        "crates/dray-orchestrator/src/config/permissions.rs",
        |text, fill| {
            let variant = fill("    /// Tools of the kind `@name@`.\n    @Name@,\n");
            let text = insert_after(text, "    DialApp,\n", &variant)?;
            let text = insert_before(
                &text,
                "        Self::PythonInterpreter,",
                &fill("        Self::@Name@,\n"),
            )?;
            let arm = fill("            Self::@Name@ => \"@name@\",\n");
            insert_before(&text, "            Self::PythonInterpreter =>", &arm)
        },
    )?;
    tree.edit("crates/dray-orchestrator/src/permissions/manifest.rs", |text, fill| {
        let arm =
            "            ToolSet::@Name@(set) if set.common.enabled => self.check_kind(path, ToolKind::@Name@),\n";
        let text = insert_before(text, "            ToolSet::Predefined(template) =>", &fill(arm))?;
        insert_before(&text, "            | ToolSet::DialApp(_) => {}", &fill("            | ToolSet::@Name@(_)\n"))
    })?;
    tree.edit(
        "crates/dray-orchestrator/src/turn/tool_sources.rs",
        |text, fill| {
            let arm = fill("        ToolSet::@Name@(set) => names.push(set.name.clone()),\n");
            insert_before(text, "        ToolSet::Predefined(template) =>", &arm)
        },
    )?;
    tree.edit(
        "crates/dray-orchestrator/src/turn/setup.rs",
        |text, fill| {
            let arm =
                fill("            ToolSet::@Name@(set) => dray_tool_@snake@::build_set(set),\n");
            insert_after(
                text,
                "            ToolSet::Internal(set) => self.build_internal(set),\n",
                &arm,
            )
        },
    )
}

fn format(tree: &mut SkeletonTree<'_>) -> anyhow::Result<()> {
    tree.create(&FORMAT_FILES)?;
    tree.edit("crates/dray-documents/src/formats/mod.rs", |text, fill| {
        let text = insert_line(text, "mod ", ";", &fill("mod @snake@;"))?;
        let family =
            fill("    FormatFamily::new(\"@snake@\", &[\"@name@\"], @snake@::SAMPLES, @snake@::converter),\n");
        let archive =
            "    FormatFamily::new(\"archive\", &[\"zip\"], archive::SAMPLES, archive::converter),\n";
        insert_after(&text, archive, &family)
    })
}
