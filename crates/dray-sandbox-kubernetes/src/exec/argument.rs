//! Commands as the API takes them: text, with the mark by which a command is found.

use dray_sandbox_exec::spelled;

/// Runs its arguments, which are text.
const RUN_SCRIPT: &str = r#"DRAY_TRANSFER=$1; export DRAY_TRANSFER; shift; exec "$@""#;

/// Runs the command that its second argument spells, byte for byte.
const UNFOLD_SCRIPT: &str =
    r#"DRAY_TRANSFER=$1; export DRAY_TRANSFER; eval "exec $(printf %b "$2")""#;

/// The command, with the mark in its environment. Container runtimes carry only text, so bytes that are not UTF-8 are
/// written as escapes, which a shell decodes.
pub(super) fn marked(mark: &str, argv: &[Vec<u8>]) -> Vec<String> {
    let texts: Result<Vec<_>, _> = argv.iter().map(|word| str::from_utf8(word)).collect();
    let (script, words) = match texts {
        Ok(texts) => (RUN_SCRIPT, texts.into_iter().map(str::to_owned).collect()),
        Err(_) => (UNFOLD_SCRIPT, vec![spelled(argv)]),
    };
    ["sh", "-c", script, "sh", mark]
        .into_iter()
        .map(str::to_owned)
        .chain(words)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use dray_sandbox_exec::MARK_VARIABLE;

    use super::*;

    fn run(argv: &[Vec<u8>]) -> Output {
        let command = marked("7e57", argv);
        let (program, arguments) = command.split_first().unwrap();
        Command::new(program).args(arguments).output().unwrap()
    }

    #[test]
    fn r_16_any_bytes_reach_the_command_and_none_is_executed() {
        let nasty: Vec<u8> = (1..=255).collect();
        let hostile: &[u8] = b"\xff$(touch /tmp/no)`id`'\"\\\\0 %s\n\n";
        for words in [
            vec![nasty, hostile.to_vec(), b"-n".to_vec(), b"".to_vec()],
            vec![b"a 'b' \xc3\xa4 $x\n".to_vec(), b"".to_vec()],
        ] {
            let mut argv = vec![b"printf".to_vec(), b"%s|".to_vec()];
            argv.extend(words.iter().cloned());
            let mut expected = words.join(&b'|');
            expected.push(b'|');
            assert_eq!(run(&argv).stdout, expected);
        }
    }

    #[test]
    fn a_command_and_its_children_carry_the_mark() {
        for last in [b"x".to_vec(), b"\xff".to_vec()] {
            let script = format!("(printf %s \"${MARK_VARIABLE}\")").into_bytes();
            let argv = vec![b"sh".to_vec(), b"-c".to_vec(), script, b"sh".to_vec(), last];
            assert_eq!(run(&argv).stdout, b"7e57");
        }
    }
}
