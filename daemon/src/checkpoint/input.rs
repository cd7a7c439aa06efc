//! Arguments as a model wrote them.
//!
//! A save may be the last thing a session does, so nothing is refused over form that has a sensible
//! reading: `null` is not given, a JSON-encoded string stands for what it encodes, a bare string
//! for a list of one, `completed` for `done`, `"1"` for 1. Inside a list nothing refuses at all. What was
//! dropped or guessed is said in a warning that quotes it; a mere change of form is silent. A
//! [`Refusal`] names the argument, what was wrong, and the call that would work.
//!
//! [`Arguments`] is the reader that all three tools use; [`SaveRequest`] is what a save asks for. Lengths
//! are not checked here: redaction comes before clipping.

use serde_json::{Map, Value};

use super::model::TaskStatus;
use super::redact::{Clean, Redactor};
use super::text::{one_line, shorten};

/// A call that can't be done as it was made; the text says how to call instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// What a save asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SaveRequest {
    /// The goal, not blank.
    pub goal: String,
    /// `None` where not given, here and below.
    pub tasks: Option<Vec<GivenTask>>,
    /// Where things stand.
    pub summary: Option<String>,
    /// What to do next.
    pub next_steps: Option<Vec<String>>,
    /// Decisions and dead ends.
    pub decisions: Option<Vec<String>>,
    /// Files with notes.
    pub modified_files: Option<Vec<GivenFile>>,
    /// Commands that mattered.
    pub recent_commands: Option<Vec<GivenCommand>>,
    /// How to treat the earlier checkpoint.
    pub mode: Mode,
}

/// How a save treats the session's earlier checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is written anew.
    #[default]
    Replace,
    /// It is added to.
    Merge,
}

impl Mode {
    /// As the argument spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Replace => "replace",
            Mode::Merge => "merge",
        }
    }
}

/// A task as given.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenTask {
    /// Not blank.
    pub description: String,
    /// How far it is.
    pub status: TaskStatus,
}

/// A file as given.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenFile {
    /// Not blank; not yet brought into the form that is stored.
    pub path: String,
    /// What the agent says of it.
    pub note: Option<String>,
}

/// A command as given.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenCommand {
    /// Not blank.
    pub command: String,
    /// Its exit code, where known.
    pub exit_code: Option<i64>,
    /// What came of it.
    pub note: Option<String>,
}

impl SaveRequest {
    /// The request without its secrets. File names stay: they name what is in the project already.
    pub fn redacted(mut self, redactor: &mut Redactor) -> Clean<SaveRequest> {
        let mut clean = |text: &mut String| *text = redactor.text(text);
        clean(&mut self.goal);
        self.summary.iter_mut().for_each(&mut clean);
        self.next_steps.iter_mut().flatten().for_each(&mut clean);
        self.decisions.iter_mut().flatten().for_each(&mut clean);
        for task in self.tasks.iter_mut().flatten() {
            clean(&mut task.description);
        }
        for file in self.modified_files.iter_mut().flatten() {
            file.note.iter_mut().for_each(&mut clean);
        }
        for command in self.recent_commands.iter_mut().flatten() {
            clean(&mut command.command);
            command.note.iter_mut().for_each(&mut clean);
        }
        Redactor::vouch(self)
    }
}

/// The arguments of one call, read one by one; what is left over is unknown.
#[derive(Debug)]
pub struct Arguments {
    given: Map<String, Value>,
    warnings: Vec<String>,
}

impl Arguments {
    /// The arguments of a call; `null` values are not given.
    pub fn new(given: Map<String, Value>) -> Arguments {
        Arguments {
            given: without_nulls(given),
            warnings: Vec::new(),
        }
    }

    /// An argument by name, which is then no longer unknown.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.given.shift_remove(name)
    }

    /// A word such as a selector or a mode: text, where blank is not given.
    pub fn word(&mut self, name: &str, instead: &str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => {
                let text = text.trim();
                Ok((!text.is_empty()).then(|| text.to_owned()))
            }
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(wrong_type(name, "text", &other, instead)),
        }
    }

    /// A word whose form is judged only where it counts: whatever it is, it is text.
    pub fn any_word(&mut self, name: &str) -> Option<String> {
        let text = match self.take(name)? {
            Value::String(text) => text.trim().to_owned(),
            other => other.to_string(),
        };
        (!text.is_empty()).then_some(text)
    }

    /// Running text; blank counts as given. A list of texts is read as its lines.
    fn text(&mut self, name: &str, instead: &str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match plain_text(&value) {
                Some(text) => Ok(Some(text)),
                None => match lines(&value) {
                    Some(text) => Ok(Some(text)),
                    None => Err(wrong_type(name, "text", &value, instead)),
                },
            },
        }
    }

    /// A whole number that isn't negative; a numeric string is a number.
    pub fn count(&mut self, name: &str, instead: &str) -> Result<Option<u64>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(value) => match integer(&value).and_then(|number| u64::try_from(number).ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(wrong_type(
                    name,
                    "a whole number, 0 or more",
                    &value,
                    instead,
                )),
            },
        }
    }

    /// A list, whatever spelling it came in.
    fn list(
        &mut self,
        name: &str,
        what: &str,
        instead: &str,
    ) -> Result<Option<Vec<Value>>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim() == "null" => Ok(None),
            Some(value) => match as_list(value) {
                Ok(list) => Ok(Some(list)),
                Err(value) => Err(wrong_type(name, what, &value, instead)),
            },
        }
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Ends the reading: what was not asked for is unknown.
    pub fn finish(mut self) -> Vec<String> {
        if !self.given.is_empty() {
            let names: Vec<String> = self
                .given
                .keys()
                .map(|name| format!("`{}`", quote(name)))
                .collect();
            self.warnings.push(format!(
                "Ignored unknown argument(s): {}.",
                names.join(", ")
            ));
        }
        self.warnings
    }

    /// Reads what a save asks for, but for `session`, `resumedFrom` and `projectRoot`.
    pub fn save_request(&mut self) -> Result<SaveRequest, Refusal> {
        const CALL: &str = "call save_session_checkpoint with `goal`: one or two sentences saying what this session is after";
        let goal = self.text("goal", CALL)?.unwrap_or_default();
        if goal.trim().is_empty() {
            return Err(Refusal(format!(
                "`goal` is missing or blank. Nothing was saved. To save, {CALL}; all else is optional."
            )));
        }
        let mode = self.mode()?;
        Ok(SaveRequest {
            goal: goal.trim().to_owned(),
            tasks: self.tasks()?,
            summary: self.text("summary", "pass `summary` as one string")?,
            next_steps: self.texts("nextSteps")?,
            decisions: self.texts("decisions")?,
            modified_files: self.files()?,
            recent_commands: self.commands()?,
            mode,
        })
    }

    fn mode(&mut self) -> Result<Mode, Refusal> {
        const CALL: &str = "pass `mode: \"replace\"` (the default: write the checkpoint anew) or `mode: \"merge\"` (update it)";
        let word = self.word("mode", CALL)?;
        match word.map(|word| word.to_lowercase()).as_deref() {
            None | Some("replace") => Ok(Mode::Replace),
            Some("merge") => Ok(Mode::Merge),
            Some(other) => Err(Refusal(format!(
                "`mode` is `{}`, which is no mode. Nothing was saved; {CALL}.",
                quote(other)
            ))),
        }
    }

    fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        let instead = format!("pass `{name}` as a list of strings");
        let Some(list) = self.list(name, "a list of strings", &instead)? else {
            return Ok(None);
        };
        let clears = list.is_empty();
        let mut texts = Vec::new();
        for element in list {
            let text = plain_text(&element).or_else(|| only_text(&element));
            match text {
                Some(text) if !text.trim().is_empty() => texts.push(text.trim().to_owned()),
                _ => self.warn(format!(
                    "Dropped an element of `{name}` without text: {}.",
                    quote_json(&element)
                )),
            }
        }
        // A list of nothing but rubbish was not meant to clear what is there.
        Ok((clears || !texts.is_empty()).then_some(texts))
    }

    fn tasks(&mut self) -> Result<Option<Vec<GivenTask>>, Refusal> {
        let instead = "pass `tasks` as a list of {\"description\": \"…\", \"status\": \"pending\"}";
        let Some(list) = self.list("tasks", "a list of tasks", instead)? else {
            return Ok(None);
        };
        let mut tasks = Vec::new();
        for element in list {
            let Some(mut fields) = self.element("tasks", &element, "description") else {
                continue;
            };
            let status = match fields.map.shift_remove("status") {
                None => None,
                Some(value) => match plain_text(&value).as_deref().and_then(task_status) {
                    Some(status) => Some(status),
                    None => {
                        self.warn(format!(
                            "The status {} of task `{}` is unknown; recorded as pending (statuses: pending, in_progress, done, blocked).",
                            quote_json(&value),
                            quote(&fields.text)
                        ));
                        Some(TaskStatus::Pending)
                    }
                },
            };
            let status = status.unwrap_or_else(|| {
                self.warn(format!(
                    "Task `{}` has no status; recorded as pending.",
                    quote(&fields.text)
                ));
                TaskStatus::Pending
            });
            self.unknown_fields("tasks", &fields.map);
            tasks.push(GivenTask {
                description: fields.text,
                status,
            });
        }
        Ok(Some(tasks))
    }

    fn files(&mut self) -> Result<Option<Vec<GivenFile>>, Refusal> {
        let instead = "pass `modifiedFiles` as a list of {\"path\": \"src/a.rs\", \"note\": \"…\"}";
        let Some(list) = self.list("modifiedFiles", "a list of files", instead)? else {
            return Ok(None);
        };
        let mut files = Vec::new();
        for element in list {
            let Some(mut fields) = self.element("modifiedFiles", &element, "path") else {
                continue;
            };
            let note = self.note("modifiedFiles", &mut fields);
            self.unknown_fields("modifiedFiles", &fields.map);
            files.push(GivenFile {
                path: fields.text,
                note,
            });
        }
        Ok(Some(files))
    }

    fn commands(&mut self) -> Result<Option<Vec<GivenCommand>>, Refusal> {
        let instead = "pass `recentCommands` as a list of {\"command\": \"…\", \"exitCode\": 0}";
        let Some(list) = self.list("recentCommands", "a list of commands", instead)? else {
            return Ok(None);
        };
        let mut commands = Vec::new();
        for element in list {
            let Some(mut fields) = self.element("recentCommands", &element, "command") else {
                continue;
            };
            let exit_code = match fields.map.shift_remove("exitCode") {
                None => None,
                Some(value) => {
                    let code = integer(&value);
                    if code.is_none() {
                        self.warn(format!(
                            "Dropped the exit code {} of `{}`: it is no whole number.",
                            quote_json(&value),
                            quote(&fields.text)
                        ));
                    }
                    code
                }
            };
            let note = self.note("recentCommands", &mut fields);
            self.unknown_fields("recentCommands", &fields.map);
            commands.push(GivenCommand {
                command: fields.text,
                exit_code,
                note,
            });
        }
        Ok(Some(commands))
    }

    /// One element of a list of objects: its required text and its other fields. A bare text is an
    /// object that has nothing else.
    fn element(&mut self, list: &str, element: &Value, required: &str) -> Option<Fields> {
        let mut map = match element {
            Value::Object(map) => without_nulls(map.clone()),
            Value::String(text) => match encoded(text) {
                Some(Value::Object(map)) => without_nulls(map),
                _ => Map::from_iter([(required.to_owned(), element.clone())]),
            },
            _ => Map::new(),
        };
        let text = map.shift_remove(required).as_ref().and_then(plain_text);
        match text {
            Some(text) if !text.trim().is_empty() => Some(Fields {
                text: text.trim().to_owned(),
                map,
            }),
            _ => {
                self.warn(format!(
                    "Dropped an element of `{list}` without `{required}`: {}.",
                    quote_json(element)
                ));
                None
            }
        }
    }

    fn note(&mut self, list: &str, fields: &mut Fields) -> Option<String> {
        let value = fields.map.shift_remove("note")?;
        match plain_text(&value).or_else(|| lines(&value)) {
            Some(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            None => {
                self.warn(format!(
                    "Dropped the note {} of `{}` in `{list}`: it is no text.",
                    quote_json(&value),
                    quote(&fields.text)
                ));
                None
            }
        }
    }

    fn unknown_fields(&mut self, list: &str, left: &Map<String, Value>) {
        for name in left.keys() {
            let warning = format!("Ignored the unknown field `{}` in `{list}`.", quote(name));
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// One element of a list of objects.
struct Fields {
    text: String,
    map: Map<String, Value>,
}

fn without_nulls(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect()
}

/// A text, or a scalar that stands for one.
fn plain_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A list of texts as the lines of one.
fn lines(value: &Value) -> Option<String> {
    let texts: Option<Vec<String>> = value.as_array()?.iter().map(plain_text).collect();
    texts.map(|texts| texts.join("\n"))
}

/// The text of an object that holds nothing else, such as `{"step": "…"}` in a list of strings.
fn only_text(value: &Value) -> Option<String> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    map.values().next().and_then(plain_text)
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// What a string encodes, if it is a JSON array or object.
fn encoded(text: &str) -> Option<Value> {
    let text = text.trim();
    if !text.starts_with(['[', '{']) {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// A list: itself, what a string encodes, or a single element standing for a list of one.
fn as_list(value: Value) -> Result<Vec<Value>, Value> {
    match value {
        Value::Array(list) => Ok(list),
        Value::Object(_) => Ok(vec![value]),
        Value::String(ref text) => match encoded(text) {
            Some(Value::Array(list)) => Ok(list),
            Some(object) => Ok(vec![object]),
            None if text.trim().is_empty() => Ok(Vec::new()),
            None => Ok(vec![value]),
        },
        other => Err(other),
    }
}

/// The status that a word means, whatever its case and separators.
fn task_status(word: &str) -> Option<TaskStatus> {
    let word: String = word
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    match word.as_str() {
        "pending" | "todo" | "open" | "notstarted" | "new" | "planned" | "queued" | "next" => {
            Some(TaskStatus::Pending)
        }
        "inprogress" | "doing" | "active" | "started" | "ongoing" | "wip" | "working"
        | "current" => Some(TaskStatus::InProgress),
        "done" | "completed" | "complete" | "finished" | "closed" | "resolved" => {
            Some(TaskStatus::Done)
        }
        "blocked" | "stuck" | "waiting" | "onhold" => Some(TaskStatus::Blocked),
        _ => None,
    }
}

fn wrong_type(name: &str, wanted: &str, value: &Value, instead: &str) -> Refusal {
    Refusal(format!(
        "`{name}` must be {wanted}, and is {}: {instead}.",
        quote_json(value)
    ))
}

/// Foreign text inside a message: without secrets, on one line, not too long.
pub fn quote(text: &str) -> String {
    shorten(&one_line(&Redactor::default().text(text)), 80)
}

fn quote_json(value: &Value) -> String {
    quote(&value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(arguments: Value) -> (SaveRequest, Vec<String>) {
        let mut reader = Arguments::new(arguments.as_object().unwrap().clone());
        let request = reader.save_request().unwrap();
        (request, reader.finish())
    }

    fn refused(arguments: Value) -> String {
        let mut reader = Arguments::new(arguments.as_object().unwrap().clone());
        reader.save_request().unwrap_err().0
    }

    #[test]
    fn another_spelling_of_the_same_is_read_without_a_word() {
        let (plain, warnings) = read(json!({
            "goal": "g",
            "tasks": [{"description": "t", "status": "in_progress"}],
            "nextSteps": ["one"],
            "recentCommands": [{"command": "c", "exitCode": 1}],
            "mode": "merge"
        }));
        assert_eq!(warnings, Vec::<String>::new());
        let (other, warnings) = read(json!({
            "goal": " g\n",
            "tasks": "[{\"description\": \"t\", \"status\": \"In-Progress\", \"x\": null}]",
            "nextSteps": "one",
            "recentCommands": [{"command": "c", "exitCode": "1"}],
            "mode": "Merge",
            "summary": null
        }));
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(plain, other);
    }

    #[test]
    fn inside_a_list_nothing_refuses_and_every_loss_is_quoted() {
        let (request, warnings) = read(json!({
            "goal": "g",
            "tasks": [{"description": "a", "status": "odd"}, {"status": "done"}, 7, "bare"],
            "decisions": ["d", {}, "  "],
            "recentCommands": [{"command": "c", "exitCode": "x", "note": {}, "shell": "zsh"}],
            "extra": 1
        }));
        let tasks = request.tasks.unwrap();
        assert_eq!(tasks.len(), 2);
        assert!(tasks.iter().all(|task| task.status == TaskStatus::Pending));
        assert_eq!(request.decisions.unwrap(), ["d"]);
        assert_eq!(request.recent_commands.unwrap()[0].exit_code, None);
        for quoted in [
            "\"odd\"",
            "{\"status\":\"done\"}",
            "7",
            "bare",
            "{}",
            "\" \"",
            "\"x\"",
            "shell",
            "extra",
        ] {
            assert!(
                warnings.iter().any(|w| w.contains(quoted)),
                "{quoted}: {warnings:?}"
            );
        }
    }

    #[test]
    fn a_refusal_names_the_argument_and_the_call_that_works() {
        for (arguments, argument, instead) in [
            (json!({}), "`goal`", "save_session_checkpoint with `goal`"),
            (
                json!({"goal": "  "}),
                "`goal`",
                "save_session_checkpoint with `goal`",
            ),
            (json!({"goal": {"a": 1}}), "`goal`", "one or two sentences"),
            (
                json!({"goal": "g", "tasks": 7}),
                "`tasks`",
                "\"description\"",
            ),
            (
                json!({"goal": "g", "mode": "append"}),
                "`mode`",
                "\"merge\"",
            ),
            (
                json!({"goal": "g", "decisions": true}),
                "`decisions`",
                "list of strings",
            ),
        ] {
            let message = refused(arguments);
            assert!(
                message.contains(argument) && message.contains(instead),
                "{message}"
            );
        }
    }
}
