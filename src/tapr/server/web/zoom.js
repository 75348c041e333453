// Looking closer: wheel, pinch, double click or + and -; a picture that is larger than its frame is dragged. All pictures
// of the stage move together, so that the same place is compared. At normal size a swipe goes to the next picture.

const MOST = 8;
const CLOSE = 2.5; // after a double click
const SWIPE = 60; // pixels to the side
const STEP = 1.5; // of a key

export class Zoom {
  #scale = 1;
  #x = 0; // of the picture's size: how far it is moved
  #y = 0;
  #pointers = new Map(); // id -> {x, y}: fingers on the stage
  #start = null; // where one finger went down, {x, y, time}

  // `stage` holds the frames (.stack); `swiped` gets -1 or 1; `closer` is called when more pixels are needed
  constructor(stage, { swiped, closer }) {
    Object.assign(this, { stage, swiped, closer });
    stage.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    stage.ondblclick = (event) => this.#frameOf(event) && this.#to(this.#scale > 1 ? 1 : CLOSE, event);
    stage.onpointerdown = (event) => this.#down(event);
    stage.onpointermove = (event) => this.#move(event);
    stage.onpointerup = stage.onpointercancel = (event) => this.#up(event);
  }

  get isClose() {
    return this.#scale > 1;
  }

  reset() {
    [this.#scale, this.#x, this.#y] = [1, 0, 0];
    this.#show();
  }

  // -> whether the key was one of its own
  key(key) {
    const scale = { "+": this.#scale * STEP, "=": this.#scale * STEP, "-": this.#scale / STEP, 0: 1 }[key];
    if (scale === undefined) return false;
    this.#to(scale, null);
    return true;
  }

  #frameOf(event) {
    return event?.target.closest?.(".stack") ?? null;
  }

  // to a scale; what is under the pointer stays there
  #to(scale, event) {
    const before = this.#scale;
    this.#scale = Math.min(MOST, Math.max(1, scale));
    const [px, py] = event ? this.#place(event) : [0, 0];
    const grown = this.#scale / before;
    this.#x = px - (px - this.#x) * grown;
    this.#y = py - (py - this.#y) * grown;
    this.#show();
  }

  // where a pointer is, from the middle of its frame, in sizes of the frame
  #place({ clientX, clientY, target }) {
    const frame = target.closest?.(".stack") ?? this.stage.querySelector(".stack");
    const box = frame.getBoundingClientRect();
    return [(clientX - box.left) / box.width - 0.5, (clientY - box.top) / box.height - 0.5];
  }

  #show() {
    const most = (this.#scale - 1) / 2;
    this.#x = Math.min(most, Math.max(-most, this.#x));
    this.#y = Math.min(most, Math.max(-most, this.#y));
    this.stage.style.setProperty("--zoom", this.#scale);
    this.stage.style.setProperty("--x", `${100 * this.#x}%`);
    this.stage.style.setProperty("--y", `${100 * this.#y}%`);
    this.stage.classList.toggle("close", this.isClose);
    if (this.isClose) this.closer();
  }

  #wheel(event) {
    if (!this.#frameOf(event)) return;
    event.preventDefault();
    this.#to(this.#scale * Math.exp(-event.deltaY / 300), event);
  }

  #down(event) {
    if (event.button !== 0 || !this.#frameOf(event)) return;
    this.#pointers.set(event.pointerId, event);
    this.#start = this.#pointers.size === 1 ? event : null;
    if (this.isClose || event.pointerType === "touch") this.stage.setPointerCapture?.(event.pointerId);
  }

  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    const moved = Object.assign(Object.create(null), { clientX: event.clientX, clientY: event.clientY, target: before.target });
    if (this.#pointers.size === 2) {
      const [other] = [...this.#pointers].filter(([id]) => id !== event.pointerId).map(([, one]) => one);
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      const middle = { clientX: (moved.clientX + other.clientX) / 2, clientY: (moved.clientY + other.clientY) / 2, target: before.target };
      this.#to((this.#scale * apart(moved)) / apart(before), middle);
    } else if (this.isClose) {
      const box = (before.target.closest(".stack") ?? this.stage).getBoundingClientRect();
      this.#x += (moved.clientX - before.clientX) / box.width;
      this.#y += (moved.clientY - before.clientY) / box.height;
      this.#show();
    }
    this.#pointers.set(event.pointerId, moved);
  }

  #up(event) {
    if (!this.#pointers.delete(event.pointerId)) return;
    const start = this.#start;
    this.#start = null;
    if (!start || event.type !== "pointerup" || this.isClose || event.pointerType === "mouse") return;
    const [across, along] = [event.clientX - start.clientX, event.clientY - start.clientY];
    if (Math.abs(across) > SWIPE && Math.abs(across) > 1.5 * Math.abs(along)) this.swiped(across < 0 ? 1 : -1);
  }
}
