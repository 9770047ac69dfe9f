"""ZipMembers: the members of a zip archive, read without writing to disk; no two may share a byte.

    members      each a local header and its data, stored or deflated
    directory    name, method, crc32, sizes and offset of each; it decides
    end          where the directory is, twice in an archive of more than 4 GB (zip64)

Source    PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", 6.3.10
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from puregraph.core.errors import CheckpointError, quote
from puregraph.core.storage.archive import COPIED_BYTES
from puregraph.serialize.weights.filebytes import FileBytes

LOCAL = struct.Struct("<4s5H3L2H")  # signature, version, flags, method, time, date, crc, stored, size, name, extra
ENTRY = struct.Struct("<4s6H3L5H2L")  # the same, version before and comment, disk, attributes and offset behind
END = struct.Struct("<4s4H2LH")  # signature, disks and entries of them, size and offset of the directory, comment
LOCATOR = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
COMMENT = 65535  # bytes of the comment at the end, at most
STORED, DEFLATED = 0, 8
STREAMED = 1 << 3  # a flag: sizes and crc32 are behind the data, and zero in the local header
ALLOWED = 0b110 | STREAMED | 1 << 11  # flags: how well it is deflated, streamed, names in UTF-8
WIDE = 0xFFFFFFFF  # marks a 64-bit number in the extra field
ZIP64 = 1  # the kind of that extra field


class ZipMember(NamedTuple):
    """A member: its name, method, crc32, compressed and uncompressed size, and the offset of its data."""

    name: str
    method: int
    crc: int
    stored: int
    size: int
    offset: int


class ZipMembers(dict[str, ZipMember]):
    """The members of an archive by name.

    Raises    CheckpointError for an archive with anything else than members, or other than stored or deflated ones
    """

    def __init__(self, file: BinaryIO) -> None:
        self.data = FileBytes(file)
        count, start, size = self.end()
        if size > self.data.mostStructure:
            raise CheckpointError(f"its directory has {size:,} bytes, too many for a file of {self.data.size:,}")
        directory, at, ends = self.data.bytesAt(start, size), 0, []
        for _ in range(count):
            if at + ENTRY.size > size:
                raise CheckpointError(f"its directory is damaged: it has fewer than {count} entries")
            row = ENTRY.unpack_from(directory, at)
            at += ENTRY.size
            name, extra = directory[at : at + row[10]], directory[at + row[10] : at + row[10] + row[11]]
            at += row[10] + row[11] + row[12]
            begin, member = self.member(row, name, extra)
            if member.name in self:
                raise CheckpointError(f"member {quote(member.name)} stands twice in it")
            self[member.name] = member
            ends.append((begin, member.offset + member.stored, member.name))
        if at != size:
            raise CheckpointError("its directory is damaged: it is longer than its entries")
        before = 0
        for begin, end, label in sorted(ends):
            if begin < before:
                raise CheckpointError(f"member {quote(label)} overlaps the one before it")
            before = end
        if before > start:
            raise CheckpointError("its members overlap its directory")

    def end(self) -> tuple[int, int, int]:
        """Return the number of entries in the directory, its offset and its size."""
        size = self.data.size
        tail = self.data.bytesAt(max(0, size - COMMENT - END.size), min(size, COMMENT + END.size))
        at = tail.rfind(b"PK\5\6")
        if at < 0 or at + END.size > len(tail):
            raise CheckpointError("it is a zip archive without its end: it is cut off or damaged")
        _, disk, disks, here, count, length, start, comment = END.unpack_from(tail, at)
        position = size - len(tail) + at
        stop = position
        if comment != len(tail) - at - END.size:
            raise CheckpointError("the end of its zip archive is damaged")
        if position >= LOCATOR.size + END64.size:
            signature, _, wide, _ = LOCATOR.unpack(self.data.bytesAt(position - LOCATOR.size, LOCATOR.size))
            if signature == b"PK\6\7":
                if wide > position - LOCATOR.size - END64.size:
                    raise CheckpointError("the end of its zip archive is damaged")
                fields = END64.unpack(self.data.bytesAt(wide, END64.size))
                if fields[0] != b"PK\6\6" or wide + 12 + fields[1] != position - LOCATOR.size:
                    raise CheckpointError("the end of its zip archive is damaged")
                disk, disks, here, count, length, start = fields[4:]
                stop = wide
        if disk or disks or here != count or start + length != stop:
            raise CheckpointError("the end of its zip archive is damaged: its directory is elsewhere")
        return count, start, length

    def member(self, row: tuple, name: bytes, extra: bytes) -> tuple[int, ZipMember]:
        """Return the offset of a member's local header, and the member, if header and directory agree."""
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            raise CheckpointError(f"the name of a member is not UTF-8: {name[:60]!r}") from None
        where = f"member {quote(text)}"
        flags, method, crc, disk = row[3], row[4], row[7], row[13]
        stored, size, begin = wideNumbers(row[8], row[9], row[16], extra, where)
        if flags & ~ALLOWED:
            raise CheckpointError(f"{where} is encrypted, or of a newer kind of zip archive")
        if method not in (STORED, DEFLATED) or disk:
            raise CheckpointError(f"{where} is compressed by method {method}; supported: stored and deflated")
        if begin + LOCAL.size > self.data.size:
            raise CheckpointError(f"{where} begins behind the end of the file")
        header = self.data.bytesAt(begin, min(LOCAL.size + len(name), self.data.size - begin))
        local = LOCAL.unpack_from(header)
        offset = begin + LOCAL.size + local[9] + local[10]
        if local[0] != b"PK\3\4" or local[9] != len(name) or header[LOCAL.size :] != name:
            raise CheckpointError(f"{where}: its header is damaged")
        isSame = local[2:4] == (flags, method) and (
            flags & STREAMED or local[6] == crc and local[7] in (stored, WIDE) and local[8] in (size, WIDE)
        )
        if not isSame or offset + stored > self.data.size or method == STORED and stored != size:
            raise CheckpointError(f"{where}: its header is damaged, or the file is cut off")
        return begin, ZipMember(text, method, crc, stored, size, offset)

    def chunks(self, member: ZipMember, isProven: bool = True) -> Iterator[bytes]:
        """Yield the bytes of a member; its crc32 is compared at the end.

        Raises    CheckpointError if they are damaged
        """
        crc = total = 0
        for chunk in self.stored(member) if member.method == STORED else self.inflated(member):
            crc, total = zlib.crc32(chunk, crc), total + len(chunk)
            if total > member.size:
                break
            yield chunk
        if total != member.size:
            raise CheckpointError(f"member {quote(member.name)} is damaged: wanted {member.size} bytes, got {total}")
        if isProven and crc != member.crc:
            raise CheckpointError(
                f"member {quote(member.name)} is damaged: wanted crc32 {member.crc:08x}, got {crc:08x}"
            )

    def stored(self, member: ZipMember) -> Iterator[bytes]:
        """Yield the bytes of a member as the file has them."""
        yield from self.data.chunks(member.offset, member.stored)

    def inflated(self, member: ZipMember) -> Iterator[bytes]:
        """Yield the bytes of a deflated member, never many at a time."""
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for chunk in self.stored(member):
                while chunk:
                    yield stream.decompress(chunk, COPIED_BYTES)
                    chunk = stream.unconsumed_tail
            while not stream.eof and (chunk := stream.decompress(b"", COPIED_BYTES)):
                yield chunk
        except zlib.error as error:
            raise CheckpointError(f"member {quote(member.name)} is damaged: {error}") from None
        if not stream.eof or stream.unused_data:
            raise CheckpointError(f"member {quote(member.name)} is damaged: its compressed data end early or late")

    def head(self, member: ZipMember, size: int) -> bytes:
        """Read the first bytes of a member, without verification."""
        stored = self.data.bytesAt(member.offset, min(size, member.stored))
        if member.method == STORED:
            return stored
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(stored, size)
        except zlib.error as error:
            raise CheckpointError(f"member {quote(member.name)} is damaged: {error}") from None

    def bytesOf(self, name: str, most: int, isProven: bool = True) -> bytes:
        """Read a member of at most `most` bytes.

        Raises    CheckpointError if there is none, or it is damaged or longer
        """
        if name not in self:
            raise CheckpointError(f"it has no member {quote(name)}")
        if self[name].size > most:
            raise CheckpointError(f"member {quote(name)} has {self[name].size:,} bytes, and may have {most:,}")
        return b"".join(self.chunks(self[name], isProven))


def wideNumbers(stored: int, size: int, begin: int, extra: bytes, where: str) -> tuple[int, int, int]:
    """Return the sizes and the offset of a member, replaced by 64-bit values of the extra fields if needed."""
    numbers, at = [size, stored, begin], 0
    wide = [i for i, number in enumerate(numbers) if number == WIDE]
    while wide and at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == ZIP64 and 8 * len(wide) <= length <= len(extra) - at - 4:
            for i, number in zip(wide, struct.unpack_from(f"<{len(wide)}Q", extra, at + 4)):
                numbers[i] = number
            wide = []
        at += 4 + length
    if wide:
        raise CheckpointError(f"{where}: its sizes are missing")
    return numbers[1], numbers[0], numbers[2]
