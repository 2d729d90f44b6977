// The live model behind the page.
import { doc } from "./state.js";

export const live = () => Boolean(doc.live);
export const jobState = () => null;
export const explainTarget = () => {};
export const askAttention = () => {};
export const askCurves = () => {};
export const askScores = () => {};
export const askFile = () => {};
export const liveBar = () => null;
export const startLive = async () => {};
