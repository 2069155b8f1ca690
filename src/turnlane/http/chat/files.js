// Files that go with a message: chosen, dropped or pasted, made small enough, and shown once they were sent. They travel
// inside the message, as data: URLs. Of these only pictures are ever drawn, by an <img>, which runs nothing.

const { fileBytesMax, filesMax } = document.body.dataset;
const bytesMost = Number(fileBytesMax);
export const filesMost = Number(filesMax);

const drawn = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);
const pixelsMost = 2048;
const smallestPixels = 320;
const nameMost = 100;

export const sizeName = (size) => (size < 1000 ? `${size} B` : size < 999_500 ? `${Math.round(size / 1000)} kB` : `${(size / 1e6).toFixed(1)} MB`);
export const isPicture = ({ media_type: type }) => drawn.has(type);

// The bytes, by the line they came with. They are kept apart, as lines are compared and copied all the time.
const held = new Map();

export function hold(line) {
  const files = line.attachments ?? [];
  if (files.length && files.every((file) => file.url !== undefined)) held.set(line.id, files.map((file) => file.url));
  return { ...line, attachments: files.map(({ name, media_type, size }) => ({ name, media_type, size })) };
}

export const lacksBytes = (line) => line.attachments?.length > 0 && !held.has(line.id);
export const urlOf = (line, place) => held.get(line.id)?.[place] ?? "";
export const filesOf = (line) => line.attachments.map((file, place) => ({ ...file, url: urlOf(line, place) }));

// What was chosen for the message that is being written.

let chosen = [];
let onChange = () => {};
let onTrouble = () => {};
let busy = Promise.resolve();

export function onFiles({ changed, trouble }) {
  onChange = changed;
  onTrouble = trouble;
}

export const chosenFiles = () => chosen;

export function putFiles(files) {
  chosen = files;
  onChange();
}

export function removeFile(place) {
  putFiles(chosen.filter((_, each) => each !== place));
}

export const whenReady = () => busy; // a picture may still be made smaller

// One after the other, as each takes of what is left.
export function addFiles(files) {
  for (const file of files) busy = busy.then(() => add(file));
  return busy;
}

async function add(file) {
  const name = (file.name || "picture.png").slice(-nameMost);
  if (chosen.length >= filesMost) return onTrouble(`${name}: a message may have ${filesMost} ${filesMost === 1 ? "file" : "files"}.`);
  const left = bytesMost - chosen.reduce((sum, each) => sum + each.size, 0);
  try {
    const small = await fitted(file, left);
    if (!small.size) onTrouble(`${name} is empty.`);
    else if (small.size > left) onTrouble(`${name} is too large (${sizeName(file.size)}): the files of a message may have ${sizeName(bytesMost)} together.`);
    else putFiles([...chosen, await asAttachment(small, name)]);
  } catch {
    onTrouble(`${name} cannot be read.`);
  }
}

// A picture that is too large becomes smaller until it fits; it leaves what it is not seen for (place, camera) behind.
async function fitted(file, most) {
  if (file.size <= most || !drawn.has(file.type)) return file;
  const bitmap = await createImageBitmap(file);
  try {
    for (let pixels = Math.min(pixelsMost, Math.max(bitmap.width, bitmap.height)); pixels >= smallestPixels; pixels *= 0.7) {
      const small = await scaled(bitmap, pixels);
      if (small.size <= most) return small;
    }
  } finally {
    bitmap.close();
  }
  return file;
}

function scaled(bitmap, pixels) {
  const share = Math.min(1, pixels / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * share));
  canvas.height = Math.max(1, Math.round(bitmap.height * share));
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff"; // a JPEG has nothing to look through
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/jpeg", 0.85));
}

async function asAttachment(blob, name) {
  const type = /^[a-z0-9][a-z0-9.+-]*\/[a-z0-9][a-z0-9.+-]*/.exec(blob.type.toLowerCase())?.[0] ?? "application/octet-stream";
  const written = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
  const isMadeAnew = type === "image/jpeg" && !/\.jpe?g$/i.test(name);
  return {
    name: isMadeAnew ? `${name.replace(/\.[^.]*$/, "")}.jpg` : name,
    media_type: type,
    size: blob.size,
    url: `data:${type};base64,${written.slice(written.indexOf(",") + 1)}`,
  };
}

// Whatever it is, it is saved and never opened here.
export async function save(name, url) {
  const bytes = Uint8Array.from(atob(url.slice(url.indexOf(",") + 1)), (character) => character.charCodeAt(0));
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
