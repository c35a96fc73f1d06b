//! Arguments that the engine's JSON cannot carry.

use dray_sandbox_exec::spelled;

/// Runs the command that its argument contains, quoted for a shell with all special bytes as escapes.
const UNFOLD_SCRIPT: &str = r#"eval "exec $(printf %b "$1")""#;

/// The command as text. A command with bytes that are not UTF-8 becomes a shell that decodes escapes.
pub(super) fn text(argv: &[Vec<u8>]) -> Vec<String> {
    let whole: Result<Vec<_>, _> = argv.iter().map(|word| str::from_utf8(word)).collect();
    if let Ok(words) = whole {
        return words.into_iter().map(str::to_owned).collect();
    }
    ["sh", "-c", UNFOLD_SCRIPT, "sh"]
        .into_iter()
        .map(str::to_owned)
        .chain([spelled(argv)])
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn text_stays_as_it_is() {
        let argv = vec![b"sh".to_vec(), b"a 'b' \xc3\xa4 $x\n".to_vec()];
        assert_eq!(text(&argv), ["sh", "a 'b' \u{e4} $x\n"]);
    }

    #[test]
    fn r_16_any_bytes_reach_the_command_and_none_is_executed() {
        let nasty: Vec<u8> = (1..=255).collect();
        let words: Vec<Vec<u8>> = vec![
            nasty,
            b"\xff$(touch /tmp/no)`id`'\"\\\\0 %s\n\n".to_vec(),
            b"-n".to_vec(),
            b"".to_vec(),
        ];
        let mut argv = vec![b"printf".to_vec(), b"%s|".to_vec()];
        argv.extend(words.iter().cloned());
        let command = text(&argv);
        let (program, arguments) = command.split_first().unwrap();
        let output = Command::new(program).args(arguments).output().unwrap();
        let mut expected = words.join(&b'|');
        expected.push(b'|');
        assert_eq!(output.stdout, expected);
    }
}
