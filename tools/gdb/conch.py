# SPDX-License-Identifier: Apache-2.0
"""Makes gdb print status, list, buf and request in readable form: `source tools/gdb/conch.py`, or `gdb -x
tools/gdb/conch.py …`.

    print *st                                  a status: its code and message
    print b                                    a buf: how full it is, and its text
    print s->queue                             a list: how many links it has besides this one
    print *r                                   a request: which, whose, where it is, its inputs; print/r shows all
    members
    conch-list s->queue 'struct request' link  each of the objects whose link is in the list

Members are found by name, also in the parts of a struct, and a missing one is left out: so a member that moves from a
request into a part of it is still found. A core file works, too: no function of the program is called.
docs/internals/debugging.md has more.
"""

import gdb
import gdb.printing

MAX_LINKS = 10000  # a list with more is probably broken
MAX_TEXT = 400  # characters of a text that are shown
STRUCTS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)


def member(value, name):
    """The member of that name, of the struct or of a part of it, the outermost one; or None."""
    parts = [value]
    while parts:
        inner = []
        for part in parts:
            for field in part.type.strip_typedefs().fields():
                if field.name == name:
                    return part[field]
                if field.type.strip_typedefs().code in STRUCTS:
                    inner.append(part[field])
        parts = inner
    return None


def number(value):
    return None if value is None else int(value)


def text(pointer):
    """The text of a char *, in quotes; None for NULL and for unreadable memory."""
    if pointer is None or not pointer:
        return None
    try:
        content = pointer.string(errors="replace", length=-1)
    except gdb.MemoryError:
        return f"<no memory at {int(pointer):#x}>"
    return quoted(content)


def quoted(content):
    cut = f"… ({len(content)} characters)" if len(content) > MAX_TEXT else ""
    return '"' + content[:MAX_TEXT].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' + cut


def enumerator(value, name):
    """The name of a value of `enum name`; its number where the program has no such enum, or the enum no such value."""
    try:
        fields = gdb.lookup_type(f"enum {name}").fields()
    except gdb.error:
        fields = []
    return next((field.name for field in fields if field.enumval == int(value)), str(int(value)))


def links(head):
    """The links behind a head, and the fault of the list, or None."""
    first = int(head.address)
    link, before, found = head["next"], first, []
    while int(link) != first:
        if len(found) == MAX_LINKS:
            return found, f"more than {MAX_LINKS}"
        try:
            if int(link["prev"]) != before:
                return found, f"broken: link {int(link):#x} has prev {int(link['prev']):#x}, not {before:#x}"
            before, following = int(link), link["next"]
        except gdb.MemoryError:
            return found, f"broken: there is no memory at {int(link):#x}"
        found.append(link)
        link = following
    return found, None


class Status:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        refs = number(member(self.value, "refs"))
        owners = "never freed" if refs == 0 else "1 owner" if refs == 1 else f"{refs} owners"
        return f"{enumerator(self.value['code'], 'status_code')} {text(self.value['message'])} ({owners})"


class List:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        if not self.value["next"]:
            return "list, not initialised"
        if self.value.address is None:
            return f"list, copied from elsewhere: {{prev = {self.value['prev']}, next = {self.value['next']}}}"
        found, wrong = links(self.value)
        if wrong:
            return f"list of {len(found)}, {wrong}"
        return f"list of {len(found)}" if found else "list, empty"


class Buf:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        size, capacity, most = (int(self.value[name]) for name in ("size", "capacity", "max"))
        failed = ""
        if self.value["failed"]:
            failed = ", full: something was not added" if self.value["full"] else ", out of memory: something was not added"
        content = ""
        if size:
            try:
                shown = self.value["data"].lazy_string(length=min(size, MAX_TEXT)).value()
                content = ": " + shown.format_string() + ("…" if size > MAX_TEXT else "")
            except gdb.error:
                content = f": <no memory at {int(self.value['data']):#x}>"
        return f"buf, {size} of {capacity} bytes, at most {most}{failed}{content}"


class Request:
    def __init__(self, value):
        self.value = value

    def get(self, name):
        return member(self.value, name)

    def to_string(self):
        return f"request {text(self.get('id'))} of {self.model()}, {enumerator(self.get('stage'), 'request_stage')}"

    def model(self):
        model = self.get("model")
        if not model:
            return "no model"
        return f"model {text(member(model.dereference(), 'name'))} version {number(member(model.dereference(), 'version'))}"

    def children(self):
        yield from ((name, value) for name, value in self.facts() if value)

    def facts(self):
        yield "sequence", self.correlation()
        for name in ("priority", "timeout_us", "batch_size"):
            yield name, number(self.get(name))
        for i in range(number(self.get("n_inputs")) or 0):
            yield f"input {i}", self.tensor(self.get("inputs")[i].dereference())
        for i in range(number(self.get("n_outputs")) or 0):
            yield f"requested output {i}", text(self.get("outputs")[i])
        yield "parameters", number(self.get("n_parameters"))
        for name in ("cancelled", "answered", "is_large", "padding"):
            yield name, "yes" if self.get(name) else None
        refusal = self.get("refusal")
        yield "refusal", refusal.dereference() if refusal else None
        yield "references", number(self.get("refs"))

    def correlation(self):
        of = self.get("correlation_id")
        name = of is not None and (text(of["string"]) or number(of["number"]))
        if not name:
            return None
        bits = number(self.get("flags")) or 0
        return f"{name}{', starts' if bits & 1 else ''}{', ends' if bits & 2 else ''}"

    @staticmethod
    def tensor(tensor):
        shape = ",".join(str(int(tensor["shape"][i])) for i in range(int(tensor["n_dims"])))
        dtype = enumerator(tensor["dtype"], "dtype").removeprefix("DTYPE_")
        return f"{text(tensor['name'])} {dtype} [{shape}], {int(tensor['size_bytes'])} bytes in {int(tensor['n_buffers'])}"


class ListCommand(gdb.Command):
    """conch-list HEAD TYPE MEMBER: print each object of a list, such as conch-list s->queue 'struct request' link."""

    def __init__(self):
        super().__init__("conch-list", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        arguments = gdb.string_to_argv(argument)
        if len(arguments) != 3:
            raise gdb.GdbError("conch-list HEAD TYPE MEMBER")
        expression, type_name, name = arguments
        head = gdb.parse_and_eval(expression)
        if head.type.strip_typedefs().code == gdb.TYPE_CODE_PTR:
            head = head.dereference()
        offset = int(gdb.parse_and_eval(f"(long)&(({type_name} *)0)->{name}"))
        found, wrong = links(head)
        for i, link in enumerate(found):
            at = int(link) - offset
            print(f"{i}: {at:#x} {gdb.parse_and_eval(f'*({type_name} *){at}').format_string()}")
        if wrong:
            print(wrong)


def printers():
    collection = gdb.printing.RegexpCollectionPrettyPrinter("conch")
    for name, printer in (("status", Status), ("list", List), ("buf", Buf), ("request", Request)):
        collection.add_printer(name, f"^{name}$", printer)
    return collection


gdb.printing.register_pretty_printer(gdb.current_objfile(), printers(), replace=True)
ListCommand()
