#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Translates the syntax that only nvcc reads in a CUDA source to calls of the emulation (include/):
#   kernel<<<grid, block, bytes, stream>>>(a, b)   emulated::launch(kernel, NAME, {...}, a, b)
#   asm("dp4a.u32.s32 %0, %1, ...;" : ...)         ptx::dp4a_u32_s32(result, samples, ...)
#   __shared__ arrays                              memory of the block
#   #pragma unroll                                 nothing: unrolling would take clang a minute per file
# Everything else, line numbers included, stays as it is. translate.py SOURCE TARGET [SOURCE TARGET...]
# A target that would not change is left alone, so that it is not compiled again.
import os
import re
import sys


class Source:
    """A text in which brackets are matched, outside of strings and comments."""

    def __init__(self, text):
        self.text = text
        # The same text with comments and strings blanked out, from which the structure is read.
        blank = lambda match: re.sub(r"[^\n]", " ", match.group())
        self.plain = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)

    def close(self, at):
        """The place after the bracket that closes the one at `at`."""
        depth = 0
        for i in range(at, len(self.plain)):
            depth += (self.plain[i] in "([{") - (self.plain[i] in ")]}")
            if depth == 0:
                return i + 1
        raise SyntaxError("no end of " + self.text[at : at + 60])

    def split(self, start, end, separator):
        """The parts of text[start:end] between separators that no bracket surrounds."""
        parts, depth, first = [], 0, start
        for i in range(start, end):
            depth += (self.plain[i] in "([{") - (self.plain[i] in ")]}")
            if self.plain[i] == separator and depth == 0:
                parts.append(self.text[first:i])
                first = i + 1
        return parts + [self.text[first:end]]


def one_line(text):
    return " ".join(text.split())


def replace(source, start, end, by):
    """text with [start:end] replaced by one line; later lines keep their numbers."""
    lines = source.text.count("\n", start, end)
    return source.text[:start] + by + "\n" * lines + source.text[end:]


def callee_start(plain, end):
    """Where the name of the kernel that ends at `end` begins; the name includes template arguments."""
    i = len(plain[:end].rstrip())
    if plain[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            depth += (plain[i] == ">") - (plain[i] == "<")
            if depth == 0:
                break
    return re.search(r"\w+$", plain[:i]).start()


def translate_launch(text):
    source = Source(text)
    at = source.plain.find("<<<")
    if at < 0:
        return None
    start = callee_start(source.plain, at)
    shape_end = source.plain.index(">>>", at)
    end = source.close(source.plain.index("(", shape_end))
    kernel = one_line(source.text[start:at])
    shape = one_line(source.text[at + 3 : shape_end])
    arguments = one_line(source.text[source.plain.index("(", shape_end) + 1 : end - 1])
    return replace(source, start, end,
                   f'emulated::launch({kernel}, "{kernel}", {{{shape}}}, {arguments})')


def ptx_operand(text, operands):
    """A PTX operand as arguments of a call."""
    text = text.strip()
    if text.startswith("{"):
        return ", ".join(ptx_operand(part, operands) for part in text[1:-1].split(","))
    if "|" in text:
        return ", ".join(ptx_operand(part, operands) for part in text.split("|"))
    text = re.sub(r"^\[(.*)\]$", r"\1", text)
    if text == "_":
        return "ptx::none()"
    match = re.fullmatch(r"%(\d+)", text)
    if match:
        return operands[int(match.group(1))]
    if re.fullmatch(r"\w+", text):  # a number, or a register of the block
        return text
    raise SyntaxError("PTX operand " + text)


def ptx_calls(template, operands):
    body = template.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    calls = []
    for statement in filter(None, map(str.strip, body.split(";"))):
        register = re.fullmatch(r"\.reg \.pred (\w+)", statement)
        if register:
            calls.append(f"bool {register.group(1)};")
            continue
        mnemonic, _, rest = statement.partition(" ")
        name = re.sub(r"[.:]+", "_", mnemonic)
        parts = Source(rest).split(0, len(rest), ",") if rest else []
        arguments = ", ".join(ptx_operand(part, operands) for part in parts)
        calls.append(f"ptx::{name}({arguments});")
    return " ".join(calls)


def translate_asm(text):
    source = Source(text)
    match = re.search(r"\basm\b\s*(volatile\s*)?\(", source.plain)
    if not match:
        return None
    end = source.close(match.end() - 1)
    sections = source.split(match.end(), end - 1, ":")
    template = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', sections[0]))
    template = re.sub(r"\\[nt]", " ", template)
    operands = []
    for section in sections[1:3]:
        inner = Source(section)
        for operand in inner.split(0, len(section), ","):
            if operand.strip():
                operands.append(one_line(operand[operand.index('"', operand.index('"') + 1) + 1 :]))
    return replace(source, match.start(), end,
                   f"do {{ {ptx_calls(template, operands)} }} while (0)")


def translate_shared(text):
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];",
                  r"\1 *const \2 = (\1 *)emulated::dynamic_shared();", text)
    return re.sub(r"(?<!\w)__shared__ ((?:struct )?\w+) (\w+)(\[[^;]*\]);",
                  r"auto &\2 = emulated::static_shared<\1\3, __LINE__>();", text)


def translate(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for step in translate_asm, translate_launch:
        translated = text
        while translated is not None:
            text = translated
            translated = step(text)
    text = re.sub(r"^ *#pragma unroll.*$", "", text, flags=re.M)
    return f'#line 1 "{path}"\n{translate_shared(text)}'


def main():
    for path, target in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        text = translate(path)
        if os.path.exists(target):
            with open(target, encoding="utf-8") as file:
                if file.read() == text:
                    continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)


main()
