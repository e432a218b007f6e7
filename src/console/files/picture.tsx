interface Visual {
  name: string;
  mimeType: string;
  size: number;
}

/** Whether a file is a video or an image. */
export const isVisual = ({ mimeType, size }: Visual): boolean => /^(video|image)\//.test(mimeType) && size > 0;

/** Plays a video, or shows an image, unless the browser does not know its format. */
export const Picture = ({ file: { name, mimeType }, url }: { file: Visual; url: string | undefined }) =>
  mimeType.startsWith("video/") ? (
    // biome-ignore lint/a11y/useMediaCaption: files have no captions.
    <video class="picture" controls preload="metadata" aria-label={name} src={url} />
  ) : (
    url && (
      <img
        class="picture"
        alt={name}
        src={url}
        onError={({ currentTarget }) => {
          currentTarget.hidden = true;
        }}
      />
    )
  );
