// Reads files of JSON with comments as an editor does, by the parser of Visual Studio Code.
// Arguments: files. It prints a line of JSON for each: what the file holds.

import { readFileSync } from 'node:fs';
import { parse, printParseErrorCode } from 'jsonc-parser';

for (const file of process.argv.slice(2)) {
  const errors = [];
  const value = parse(readFileSync(file, 'utf8'), errors, { allowTrailingComma: true, disallowComments: false, allowEmptyContent: false });
  if (errors.length > 0) {
    throw new Error(`${file}: ${errors.map((e) => `${printParseErrorCode(e.error)} at ${e.offset}`).join(', ')}`);
  }
  console.log(JSON.stringify(value));
}
