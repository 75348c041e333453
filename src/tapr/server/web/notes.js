// What the server says of a search, in the words of the page. A note that is not in this table stays as it came.

import { t } from "./i18n.js";

const NOTES = [
  [/^(?:not known, taken as they stand|not in the vocabulary, taken as they stand|unknown words, used as typed): (?<words>.+)$/i, "note.unknown"],
  [/^\d+ references: (?:each has an equal part|pictures count equally)/, "note.several"],
  [/^of picture (?<number>\d) only the chosen part counts/, "note.part_of"],
  [/^of the reference only the chosen part counts/, "note.part"],
  [/^your marks count: /, "note.marks"],
  [/^the caption ".+" is unsure/, "note.unsure"],
  [/^the edit is not in English/, "note.foreign"],
  [/^the edit names nothing definite to add or remove/, "note.vague"],
  [/^nothing of the reference stays/, "note.nothing_stays"],
  [/^the words fit about (?<fitting>[\d,]+) pictures? of (?<all>[\d,]+): the words decide/, "note.words_decide"],
  [/^the words fit about (?<fitting>[\d,]+) pictures? of (?<all>[\d,]+): the reference decides/, "note.picture_decides"],
  [/^the edit is \w+, read word by word as "(?<said>.+?)"(?:; (?:not in the table|unknown words), (?:taken as they stand|used as typed): (?<words>.+))?$/, "note.translated"],
  [/^"(?<word>[^"]+)" is read as "(?<meant>[^"]+)"$/, "note.spelling"],
];

// how the picture was read, for those who want to know: it stands among the details
const DETAILS = [/^the tags are surer than the caption/, /^this encoder has no captioner/, /^the caption says/];
export const isDetail = (note) => DETAILS.some((pattern) => pattern.test(note));

// the server's sentence of what the page says by itself: the numbers are in `prefilter`
export const isProof = (note) => /^exact: (?:not )?proven; /.test(note);

export function told(note) {
  for (const [pattern, key] of NOTES) {
    const found = pattern.exec(note);
    if (!found) continue;
    const lost = key === "note.translated" && found.groups.words ? [t("note.unknown", found.groups)] : [];
    return [t(key, found.groups), ...lost].join(" · ");
  }
  return note[0].toUpperCase() + note.slice(1);
}
