package memoryd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	memoryd "github.com/memoryd/memoryd/clients/go"
)

// credential looks like one, and is put together so that no scanner takes it for one in this file.
var credential = "ghp_" + strings.Repeat("a1B2", 9)

func TestMemoryFiles(t *testing.T) {
	ctx, session, client := newSession(t)
	files := client.ProjectMemory(session.ID())
	_, err := files.Get(ctx, memoryd.MemoryIndex)
	equal(t, "name", failsWith(t, err, memoryd.ErrMemoryFileNotFound).Metadata["name"], "MEMORY.md")
	added, err := files.Add(ctx, []string{"- uses cursors", "- tests run"}, memoryd.Author("mia"))
	ok(t, err)
	equal(t, "added", added.AddedCount, 2)
	added, err = files.Add(ctx, []string{"- uses cursors"})
	ok(t, err)
	equal(t, "skipped", added.SkippedCount, 1)
	index, err := files.Get(ctx, memoryd.MemoryIndex)
	ok(t, err)
	equal(t, "text", index.Text(), "- uses cursors\n- tests run\n")
	equal(t, "author", index.Info.Author, "mia")
	_, err = files.Put(ctx, memoryd.MemoryIndex, []byte("\xff"), memoryd.IfEtag(index.Info.Etag), memoryd.RequestID("r"))
	ok(t, err)
	_, err = files.Put(ctx, memoryd.MemoryIndex, []byte("b"), memoryd.IfEtag(index.Info.Etag))
	failsWith(t, err, memoryd.ErrEtagMismatch)
	_, err = files.Put(ctx, memoryd.MemoryIndex, []byte("b"), memoryd.CreateOnly())
	failsWith(t, err, memoryd.ErrEtagMismatch)
	index, err = files.Get(ctx, memoryd.MemoryIndex)
	ok(t, err)
	equal(t, "content", string(index.Content), "\xff")
	equal(t, "text", index.Text(), "\uFFFD")
	index, err = files.Get(ctx, memoryd.MemoryIndex, memoryd.AtVersion(1))
	ok(t, err)
	equal(t, "version", index.Info.Version, 1)
	versions, err := files.Versions(ctx, memoryd.MemoryIndex)
	ok(t, err)
	equal(t, "versions", len(versions), 2)
	_, err = files.Add(ctx, []string{"- fine", "- " + credential})
	failure := failsWith(t, err, memoryd.ErrSecretFound)
	if failure.Field() == "" || failure.Metadata["kind"] == "" || strings.Contains(err.Error(), credential) {
		t.Errorf("got %v", err)
	}
	_, err = files.Add(ctx, []string{"- " + credential}, memoryd.AllowSecrets())
	ok(t, err)
	day := time.Date(2026, 7, 25, 0, 0, 0, 0, time.UTC)
	logged, err := files.Log(ctx, "Moved to cursors.", memoryd.OnDay(day), memoryd.RequestID("once"))
	ok(t, err)
	again, err := files.Log(ctx, "Moved to cursors.", memoryd.OnDay(day), memoryd.RequestID("once"))
	ok(t, err)
	equal(t, "version", again.Version, logged.Version)
	_, err = files.Log(ctx, "Today.", memoryd.InTimeZone("Europe/Oslo"))
	ok(t, err)
	listed, err := memoryd.Collect(files.List(ctx, memoryd.PageSize(1)))
	ok(t, err)
	equal(t, "files", len(listed), 3)
	equal(t, "the first", listed[0].Name, "MEMORY.md")
	deleted, err := files.Delete(ctx, "2026-07-25.md", memoryd.IfEtag(logged.Etag))
	ok(t, err)
	equal(t, "deleted", deleted, true)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
	ok(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestMemoryIsRenderedFromFiles(t *testing.T) {
	ctx, session, client := newSession(t)
	home, workspace := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("OH_PERSISTENCE_DIR", "")
	write(t, filepath.Join(home, ".openhands/memory/MEMORY.md"), "- prefers uv over pip\n")
	write(t, filepath.Join(workspace, ".openhands/memory/MEMORY.md"), "- the API uses cursors\n")
	memory, err := client.RenderContext(ctx, memoryd.UserFiles(""), memoryd.ProjectFiles(workspace), memoryd.Budget(1_000),
		memoryd.WithStyle(memoryd.MemoryOpenHands))
	ok(t, err)
	equal(t, "user", memory.User.State, memoryd.TierLoaded)
	equal(t, "project", memory.Project.State, memoryd.TierLoaded)
	prompt := memory.Prompt()
	for _, part := range []string{"prefers uv", "uses cursors", "~/.openhands/memory/MEMORY.md"} {
		if !strings.Contains(prompt, part) {
			t.Errorf("the prompt lacks %q", part)
		}
	}
	if strings.Contains(fmt.Sprintf("%v %#v", memory, memory), "prefers") || len(memory.Warnings) > 0 ||
		len(memory.Tools.Names()) > 0 {
		t.Errorf("got %v", memory)
	}
	_, err = session.Append(ctx, []*memoryd.Message{memoryd.System("You are an agent.\n\n" + prompt)})
	ok(t, err)
	stored, err := session.Message(ctx, 1)
	ok(t, err)
	if strings.Contains(memoryd.Text(stored), "prefers uv") {
		t.Error("rendered memory is stored")
	}

	t.Setenv("OH_PERSISTENCE_DIR", filepath.Join(home, "elsewhere"))
	memory, err = client.RenderContext(ctx, memoryd.UserFiles(""), memoryd.ProjectFiles(filepath.Join(workspace, "nothing")))
	ok(t, err)
	equal(t, "user", memory.User.State, memoryd.TierAbsent)
	equal(t, "project", memory.Project.State, memoryd.TierUnreadable)
	equal(t, "warnings", len(memory.Warnings), 1)

	memory, err = client.RenderContext(ctx, memoryd.UserFiles("~/.openhands/memory"), memoryd.ProjectFiles("~"))
	ok(t, err)
	equal(t, "user", memory.User.State, memoryd.TierLoaded)
	equal(t, "project", memory.Project.State, memoryd.TierAbsent)
	if len(memory.Warnings) != 1 || !strings.Contains(memory.Warnings[0], "are one file") {
		t.Errorf("got %v", memory.Warnings)
	}

	memory, err = client.RenderContext(ctx, memoryd.ForAgent(session.Agent()), memoryd.UserFiles("~/.openhands/memory"))
	ok(t, err)
	equal(t, "enabled without an opt-in", memory.Enabled, false)
	for complaint, options := range map[string][]memoryd.ContextOption{
		"one place":              {memoryd.UserFiles(""), memoryd.StoredUser("ana")},
		"the workspace is empty": {memoryd.ProjectFiles("")},
		"is empty":               {memoryd.StoredProject("")},
		"budget":                 {memoryd.Budget(1)},
	} {
		if _, err := client.RenderContext(ctx, options...); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%s: got %v", complaint, err)
		}
	}
}

func TestAModelKeepsMemoryByItsTools(t *testing.T) {
	ctx, session, client := newSession(t)
	owner := session.ID()
	memory, err := client.RenderContext(ctx, memoryd.StoredUser(owner), memoryd.StoredProject(owner))
	ok(t, err)
	tools := memory.Tools
	equalSlices(t, "names", tools.Names(), []string{"read_memory", "add_memory", "log_memory", "rewrite_memory"})
	var openAI, anthropic []map[string]any
	ok(t, json.Unmarshal(tools.OpenAI(), &openAI))
	ok(t, json.Unmarshal(tools.Anthropic(), &anthropic))
	equal(t, "type", openAI[0]["type"], any("function"))
	equal(t, "name", anthropic[3]["name"], any("rewrite_memory"))
	equal(t, "definitions", len(tools.Definitions()), 4)
	call := func(name, arguments, begins string) string {
		t.Helper()
		answer, err := tools.Call(ctx, name, arguments)
		ok(t, err)
		if !strings.HasPrefix(answer, begins) {
			t.Errorf("%s(%s): got %q, want %q…", name, arguments, answer, begins)
		}
		return answer
	}
	wrong := func(name, arguments, words string) {
		t.Helper()
		if answer := call(name, arguments, "Error: "+words); strings.Contains(answer, credential) {
			t.Errorf("%q tells the credential", answer)
		}
	}
	wrong("forget_memory", `{"tier":"user"}`, "there is no such tool; those for memory are: read_memory, add_memory")
	wrong("read_memory", `{"tier": "us`, "the arguments are no JSON object")
	wrong("read_memory", `["user"]`, "the arguments are no JSON object")
	wrong("read_memory", "", "`tier` is missing: give a string")
	wrong("add_memory", `{"entries":["- a"]}`, "`tier` is missing: give a string")
	wrong("add_memory", `{"tier":"team","entries":["- a"]}`, "`tier` can be 'user' or 'project'")
	wrong("read_memory", `{"tier":1}`, "`tier` must be a string")
	wrong("add_memory", `{"tier":"user"}`, "`entries` is missing: give an array of strings")
	wrong("add_memory", `{"tier":"user","entries":"- a"}`, "`entries` must be an array of strings")
	wrong("add_memory", `{"tier":"user","entries":["- a",5]}`, "`entries[1]` must be a string")
	wrong("add_memory", `{"tier":"user","entries":[]}`, "entries is empty: give 1 to 256 lines")
	wrong("log_memory", `{"tier":"user","text":"\ud800"}`, "`text` holds half of a surrogate pair")
	wrong("log_memory", `{"tier":"user","text":"a","date":"2026-02-30"}`, "`date` must be a day of the calendar, as")
	wrong("read_memory", `{"tier":"user","date":20260725}`, "`date` must be a string")
	wrong("read_memory", `{"tier":"user","day":"2026-07-25"}`, "there are only the arguments `tier`, `date`")
	wrong("read_memory", `{"tier":"user","from_line":0}`, "`from_line` must be 1 or more: it is the number of a line")
	wrong("read_memory", `{"tier":"user","from_line":1.5}`, "`from_line` must be an integer")
	wrong("read_memory", `{"tier":"user","from_line":1e999}`, "`from_line` must be an integer")
	wrong("read_memory", `{"tier":"user","from_line":true}`, "`from_line` must be an integer")
	wrong("rewrite_memory", `{"tier":"user","content":"- a"}`, "read the user memory's MEMORY.md with read_memory first")
	wrong("add_memory", `{"tier":"user","entries":["- `+credential+`"]}`, "line 1 of entries[0] holds a credential (")

	call("read_memory", `{"tier":"user"}`, "There are no logs.\nThere is no MEMORY.md yet")
	call("rewrite_memory", `{"tier":"user","content":"- lives in Oslo\n"}`, "MEMORY.md is rewritten: 16 bytes.")
	call("add_memory", `{"tier":"user","entries":["- lives in Oslo","- b"]}`,
		"Added to MEMORY.md: 1 of 2 entries. 1 were there already")
	wrong("rewrite_memory", `{"tier":"user","content":"- lives in Rome\n"}`,
		"the user memory's MEMORY.md was changed since you read it")
	call("log_memory", `{"tier":"user","text":"Moved.","date":"2026-07-25.md"}`, "Added to 2026-07-25.md.")
	call("read_memory", `{"tier":"user","date":"2026-07-24"}`, "Error: there is no 2026-07-24.md\nThe newest logs: 2026-07-25.md.")
	answer := call("read_memory", `{"tier":"user","from_line":1.0}`, "The newest logs: 2026-07-25.md.\n[MEMORY.md ")
	if !strings.Contains(answer, "- lives in Oslo\n- b\n[MEMORY.md ") {
		t.Errorf("got %q", answer)
	}
	wrong("read_memory", `{"tier":"user","from_line":9}`, "MEMORY.md has no line 9: read it from line 1")

	long := strings.Repeat(strings.Repeat("ö", 99)+"\r\n", 200) + strings.Repeat("z", 20_000)
	_, err = client.UserMemory(owner).Put(ctx, memoryd.MemoryIndex, []byte(long))
	ok(t, err)
	call("read_memory", `{"tier":"user"}`,
		"The newest logs: 2026-07-25.md.\nThis is a part of MEMORY.md, lines 1 to 160 of 201; read on with from_line=161.")
	wrong("rewrite_memory", `{"tier":"user","content":"- a"}`, "you have read 160 of the 201 lines")
	call("read_memory", `{"tier":"user","from_line":161}`,
		"The newest logs: 2026-07-25.md.\nThis is a part of MEMORY.md, lines 161 to 200 of 201; read on with from_line=201.")
	answer = call("read_memory", `{"tier":"user","from_line":201}`, "The newest logs: 2026-07-25.md.\nThis is the end of")
	if !strings.Contains(answer, "it is cut, and 4,001 characters are left out.") {
		t.Errorf("got %.300q", answer)
	}
	call("rewrite_memory", `{"tier":"user","content":"- short\n"}`, "MEMORY.md is rewritten")
	call("rewrite_memory", `{"tier":"user","content":""}`, "MEMORY.md is rewritten: 0 bytes.")
	call("read_memory", `{"tier":"user"}`, "The newest logs: 2026-07-25.md.\nMEMORY.md is empty.")
	_, err = client.SwitchStore(ctx, "other")
	ok(t, err)
	call("read_memory", `{"tier":"user"}`, "The newest logs: 2026-07-25.md.")
}
