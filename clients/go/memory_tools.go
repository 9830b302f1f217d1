package memoryd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/memoryd/memoryd/clients/go/internal/jsonvalue"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	// mostLogs is how many of the newest logs the answer to a read names.
	mostLogs = 14
	// noFile stands for the etag of an index that is not there.
	noFile = ""
)

// MemoryTools are the tools with which a model reads and keeps memory in the store, as [Client.RenderContext] gives them.
// All calls go to the store that the client used when memory was rendered. They may be used by several goroutines.
type MemoryTools struct {
	client *Client
	store  string
	author string
	owners map[string]*memorydv1.MemoryOwner
	tools  []*memorydv1.MemoryTool
	mutex  sync.Mutex
	seen   map[string]seenIndex
}

// seenIndex is how much of an index the model has read, from its first line on and of one state of it.
type seenIndex struct {
	etag          string
	toLine, lines int
}

func (s seenIndex) isWhole() bool { return s.toLine == s.lines }

// after is with one more page: a gap in front of it stays a gap.
func (s seenIndex) after(page memoryPage) seenIndex {
	toLine := s.toLine
	if page.fromLine <= s.toLine+1 {
		toLine = max(s.toLine, page.toLine)
	}
	return seenIndex{s.etag, toLine, page.lines}
}

// refused is what the model did wrong, in words that it can act on.
type refused string

func (r refused) Error() string { return string(r) }

func refuse(format string, values ...any) error { return refused(fmt.Sprintf(format, values...)) }

var carriedOut = map[string]func(*MemoryTools, context.Context, *toolArguments) (string, error){
	"read_memory":    (*MemoryTools).read,
	"add_memory":     (*MemoryTools).add,
	"log_memory":     (*MemoryTools).log,
	"rewrite_memory": (*MemoryTools).rewrite,
}

func newMemoryTools(c *Client, store string, r *rendering, tools []*memorydv1.MemoryTool) *MemoryTools {
	known := slices.DeleteFunc(slices.Clone(tools), func(tool *memorydv1.MemoryTool) bool {
		return carriedOut[tool.GetName()] == nil
	})
	return &MemoryTools{
		client: c, store: store, author: r.request.GetAgent(), owners: r.owners, tools: known, seen: map[string]seenIndex{},
	}
}

// Names are the names of the tools; none when the store holds no tier.
func (t *MemoryTools) Names() []string {
	var names []string
	for _, tool := range t.tools {
		names = append(names, tool.GetName())
	}
	return names
}

// Has says whether a tool of this name is among them.
func (t *MemoryTools) Has(name string) bool { return slices.Contains(t.Names(), name) }

// ToolDefinition is a tool for a model.
type ToolDefinition struct {
	// Name is the tool's name.
	Name string
	// Description says what it does, for the model.
	Description string
	// Schema is its parameters as JSON Schema.
	Schema json.RawMessage
}

// Definitions are the tools for a model, in no provider's form.
func (t *MemoryTools) Definitions() []ToolDefinition {
	var definitions []ToolDefinition
	for _, tool := range t.tools {
		definitions = append(definitions, ToolDefinition{
			Name: tool.GetName(), Description: tool.GetDescription(), Schema: json.RawMessage(tool.GetInputSchema()),
		})
	}
	return definitions
}

// OpenAI is the JSON array of the definitions in the form of OpenAI's Chat Completions.
func (t *MemoryTools) OpenAI() json.RawMessage {
	return t.array(func(tool *memorydv1.MemoryTool, schema any) any {
		return jsonvalue.NewObject("type", "function", "function", jsonvalue.NewObject(
			"name", tool.GetName(), "description", tool.GetDescription(), "parameters", schema))
	})
}

// Anthropic is the JSON array of the definitions in the form of Anthropic's Messages.
func (t *MemoryTools) Anthropic() json.RawMessage {
	return t.array(func(tool *memorydv1.MemoryTool, schema any) any {
		return jsonvalue.NewObject(
			"name", tool.GetName(), "description", tool.GetDescription(), "input_schema", schema)
	})
}

func (t *MemoryTools) array(form func(tool *memorydv1.MemoryTool, schema any) any) json.RawMessage {
	all := []any{}
	for _, tool := range t.tools {
		schema, err := jsonvalue.Parse(tool.GetInputSchema())
		if err != nil {
			schema = jsonvalue.NewObject("type", "object")
		}
		all = append(all, form(tool, schema))
	}
	return json.RawMessage(jsonvalue.Text(all))
}

// Call carries a call of the model out, with the arguments as JSON text, and gives the answer for it: the content of a tool
// result.
//
// What the model did wrong is in the answer, which then begins with "Error:"; so is a credential, told by line and kind.
// What fails for other reasons is an error: [ErrUnavailable], say.
func (t *MemoryTools) Call(ctx context.Context, name, arguments string) (string, error) {
	ctx, cancel := t.client.operation(withStore(ctx, t.store))
	defer cancel()
	answer, err := t.called(ctx, name, arguments)
	if err == nil {
		return answer, nil
	}
	var why refused
	var failed *Error
	switch {
	case errors.As(err, &why):
		return "Error: " + string(why), nil
	case !errors.As(err, &failed):
	case failed.Reason == ErrSecretFound:
		return fmt.Sprintf("Error: line %s of %s holds a credential (%s), and memory is no place for it. Nothing was "+
			"written: take it out", failed.Metadata["line"], failed.Field(), failed.Metadata["kind"]), nil
	case hasReason(err, ErrFieldRequired, ErrFieldInvalid, ErrFieldTooLarge, ErrMemoryFileFull):
		return "Error: " + failed.Message, nil
	}
	return "", err
}

func (t *MemoryTools) called(ctx context.Context, name, arguments string) (string, error) {
	if !t.Has(name) {
		names := strings.Join(t.Names(), ", ")
		if names == "" {
			names = "none"
		}
		return "", refuse("there is no such tool; those for memory are: %s", names)
	}
	given, err := newToolArguments(arguments)
	if err != nil {
		return "", err
	}
	return carriedOut[name](t, ctx, given)
}

func (t *MemoryTools) files(tier string) *MemoryFiles {
	return &MemoryFiles{client: t.client, owner: t.owners[tier]}
}

func (t *MemoryTools) read(ctx context.Context, given *toolArguments) (string, error) {
	tier := t.tier(given)
	day, fromLine := given.day(), given.line()
	if err := given.check(); err != nil {
		return "", err
	}
	files, name := t.files(tier), MemoryIndex
	if day != "" {
		name = day + ".md"
	}
	file, err := files.Get(ctx, name)
	if errors.Is(err, ErrMemoryFileNotFound) {
		logs, err := newestLogs(ctx, files)
		switch {
		case err != nil:
			return "", err
		case day != "":
			return fmt.Sprintf("Error: there is no %s\n%s", name, logs), nil
		}
		t.setSeen(tier, seenIndex{etag: noFile})
		return fmt.Sprintf("%s\nThere is no %s yet: it is made when you add to it.", logs, MemoryIndex), nil
	}
	if err != nil {
		return "", err
	}
	page, found := pageOf(file.Text(), fromLine)
	if !found {
		return "", refuse("%s has no line %d: read it from line 1", name, fromLine)
	}
	logs, err := newestLogs(ctx, files)
	if err != nil {
		return "", err
	}
	parts := []string{logs}
	if day == "" {
		seen, wasSeen := t.getSeen(tier)
		if !wasSeen {
			seen = seenIndex{etag: file.Info.GetEtag()}
		}
		if seen.etag != file.Info.GetEtag() {
			seen = seenIndex{etag: file.Info.GetEtag()}
			if fromLine > 1 {
				parts = append(parts, MemoryIndex+" was changed since you read its beginning: read it again from line 1.")
			}
		}
		t.setSeen(tier, seen.after(page))
	}
	return strings.Join(append(parts, page.shown(name)), "\n"), nil
}

func (t *MemoryTools) add(ctx context.Context, given *toolArguments) (string, error) {
	tier := t.tier(given)
	entries := given.texts("entries")
	if err := given.check(); err != nil {
		return "", err
	}
	added, err := t.files(tier).Add(ctx, entries, Author(t.author))
	if err != nil {
		return "", err
	}
	answer := fmt.Sprintf("Added to %s: %d of %d entries.", MemoryIndex, added.GetAddedCount(), len(entries))
	if added.GetSkippedCount() > 0 {
		answer += fmt.Sprintf(" %d were there already, or came twice.", added.GetSkippedCount())
	}
	return answer, nil
}

func (t *MemoryTools) log(ctx context.Context, given *toolArguments) (string, error) {
	tier := t.tier(given)
	text, day := given.text("text"), given.day()
	if err := given.check(); err != nil {
		return "", err
	}
	file, err := t.files(tier).Log(ctx, text, OnDate(day), Author(t.author))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Added to %s.", file.GetName()), nil
}

func (t *MemoryTools) rewrite(ctx context.Context, given *toolArguments) (string, error) {
	tier := t.tier(given)
	content := given.text("content")
	if err := given.check(); err != nil {
		return "", err
	}
	seen, err := t.takeSeen(tier)
	if err != nil {
		return "", err
	}
	options := []PutOption{IfEtag(seen.etag), Author(t.author)}
	if seen.etag == noFile {
		options = append(options, CreateOnly())
	}
	file, err := t.files(tier).Put(ctx, MemoryIndex, []byte(content), options...)
	switch {
	case errors.Is(err, ErrEtagMismatch):
		return "", refuse("the %s memory's %s was changed since you read it, and nothing was written: read it with "+
			"read_memory first, then rewrite what it says now", tier, MemoryIndex)
	case err != nil:
		t.restoreSeen(tier, seen)
		return "", err
	}
	t.setSeen(tier, seenIndex{etag: file.GetEtag()})
	return fmt.Sprintf("%s is rewritten: %s bytes.", MemoryIndex, thousands(file.GetSize())), nil
}

func (t *MemoryTools) getSeen(tier string) (seenIndex, bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	seen, found := t.seen[tier]
	return seen, found
}

func (t *MemoryTools) setSeen(tier string, seen seenIndex) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.seen[tier] = seen
}

// takeSeen takes what the model has read of an index, for one rewrite.
func (t *MemoryTools) takeSeen(tier string) (seenIndex, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	seen, found := t.seen[tier]
	switch {
	case !found:
		return seen, refuse("read the %s memory's %s with read_memory first, then rewrite what it says", tier, MemoryIndex)
	case !seen.isWhole():
		return seen, refuse("you have read %d of the %d lines of the %s memory's %s, and a rewrite replaces all: read on "+
			"with from_line=%d first, then rewrite what it says", seen.toLine, seen.lines, tier, MemoryIndex, seen.toLine+1)
	}
	delete(t.seen, tier)
	return seen, nil
}

func (t *MemoryTools) restoreSeen(tier string, seen seenIndex) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if _, found := t.seen[tier]; !found {
		t.seen[tier] = seen
	}
}

func (t *MemoryTools) tier(given *toolArguments) string {
	tier := given.text("tier")
	if given.err == nil && t.owners[tier] == nil {
		var names []string
		for _, name := range []string{userTier, projectTier} {
			if t.owners[name] != nil {
				names = append(names, "'"+name+"'")
			}
		}
		given.err = refuse("`tier` can be %s", strings.Join(names, " or "))
	}
	return tier
}

func newestLogs(ctx context.Context, files *MemoryFiles) (string, error) {
	// One more than are named: the index comes first.
	request := &memorydv1.ListMemoryFilesRequest{Owner: files.owner, PageSize: mostLogs + 1}
	response, err := files.client.contexts.ListMemoryFiles(ctx, request)
	if err != nil {
		return "", err
	}
	var logs []string
	for _, file := range response.GetFiles() {
		if file.GetName() != MemoryIndex && len(logs) < mostLogs {
			logs = append(logs, file.GetName())
		}
	}
	if len(logs) == 0 {
		return "There are no logs.", nil
	}
	return fmt.Sprintf("The newest logs: %s.", strings.Join(logs, ", ")), nil
}

// toolArguments are the arguments of a model's call. The first thing that is wrong with them is kept in err, and never told
// with their values.
type toolArguments struct {
	values *jsonvalue.Object
	names  []string
	err    error
}

func newToolArguments(text string) (*toolArguments, error) {
	if text == "" { // Some models send no text at all where there are no arguments.
		text = "{}"
	}
	value, err := jsonvalue.Parse(text)
	values, isObject := value.(*jsonvalue.Object)
	if err != nil || !isObject {
		return nil, refuse("the arguments are no JSON object")
	}
	return &toolArguments{values: values}, nil
}

func (a *toolArguments) refuse(format string, values ...any) {
	if a.err == nil {
		a.err = refuse(format, values...)
	}
}

// check refuses what was given beside what was asked for: a misspelt name would be no argument at all.
func (a *toolArguments) check() error {
	for _, key := range a.values.Keys() {
		if !slices.Contains(a.names, key) {
			quoted := make([]string, len(a.names))
			for i, name := range a.names {
				quoted[i] = "`" + name + "`"
			}
			a.refuse("there are only the arguments %s", strings.Join(quoted, ", "))
		}
	}
	return a.err
}

func (a *toolArguments) given(name, kind string) any {
	a.names = append(a.names, name)
	value := a.values.Value(name)
	if value == nil {
		a.refuse("`%s` is missing: give %s", name, kind)
	}
	return value
}

func (a *toolArguments) text(name string) string {
	return a.asText("`"+name+"`", a.given(name, "a string"))
}

func (a *toolArguments) texts(name string) []string {
	values, isArray := a.given(name, "an array of strings").([]any)
	if !isArray {
		a.refuse("`%s` must be an array of strings", name)
	}
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = a.asText(fmt.Sprintf("`%s[%d]`", name, i), value)
	}
	return texts
}

func (a *toolArguments) asText(name string, value any) string {
	text, isText := value.(string)
	switch {
	case !isText:
		a.refuse("%s must be a string", name)
	case !jsonvalue.Encodable(text):
		a.refuse("%s holds half of a surrogate pair, which is no character", name)
	}
	return text
}

// day is the day in `date`; empty when it is not given.
func (a *toolArguments) day() string {
	a.names = append(a.names, "date")
	value := a.values.Value("date")
	if value == nil || value == "" {
		return ""
	}
	day := strings.TrimSuffix(a.asText("`date`", value), ".md")
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		a.refuse("`date` must be a day of the calendar, as YYYY-MM-DD")
	}
	return day
}

// line is the line in `from_line`, from 1, which it is when it is not given.
func (a *toolArguments) line() int {
	a.names = append(a.names, "from_line")
	value := a.values.Value("from_line")
	if value == nil {
		return 1
	}
	number, isNumber := value.(jsonvalue.Number)
	line, err := strconv.ParseFloat(string(number), 64) // JSON Schema has 3.0 be an integer.
	switch {
	case !isNumber || err != nil || line != float64(int64(line)):
		a.refuse("`from_line` must be an integer")
	case line < 1:
		a.refuse("`from_line` must be 1 or more: it is the number of a line")
	}
	return int(line)
}
