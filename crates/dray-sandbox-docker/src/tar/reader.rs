//! A tar stream, entry by entry.

use bytes::{Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind};

use super::header::{Block, Header, Kind};
use super::{BLOCK, padding};

/// Most bytes of records or long names before one entry.
const LONGEST_RECORDS: u64 = 1 << 20;

/// Reads entries; data that is not asked for is skipped.
#[derive(Debug)]
pub(crate) struct Reader {
    body: Body,
    buffer: Bytes,
    /// Data of the current entry that was not read yet.
    left: u64,
    padding: u64,
}

/// What stood before an entry and changes what its header says.
#[derive(Debug, Default)]
struct Records {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Reader {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            buffer: Bytes::new(),
            left: 0,
            padding: 0,
        }
    }

    /// The next entry, or nothing after both end blocks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Truncated`] when the stream ends before them, [`ErrorKind::Protocol`] when it is not a tar.
    pub(crate) async fn entry(&mut self) -> Result<Option<Header>, Error> {
        let mut records = Records::default();
        loop {
            self.skip().await?;
            let block = self.block().await?;
            if block == [0; BLOCK] {
                if self.block().await? != [0; BLOCK] {
                    return Err(wrong("something follows the end of the archive"));
                }
                return Ok(None);
            }
            let mut header = Header::parse(&block)?;
            self.left = header.size;
            match header.kind {
                Kind::Pax => {
                    let data = self.short().await?;
                    pax(&data, &mut records)?;
                }
                Kind::GlobalPax => {
                    let mut global = Records::default();
                    let data = self.short().await?;
                    pax(&data, &mut global)?;
                    if global.name.is_some() || global.size.is_some() || global.link.is_some() {
                        return Err(wrong("records for all entries give names or sizes"));
                    }
                }
                Kind::GnuName => records.name = Some(until_nul(&self.short().await?)),
                Kind::GnuLink => records.link = Some(until_nul(&self.short().await?)),
                kind => {
                    if let (Some(size), true) = (records.size, kind.has_data()) {
                        header.size = size;
                    }
                    header.name = records.name.unwrap_or(header.name);
                    header.link = records.link.unwrap_or(header.link);
                    self.left = header.size;
                    self.padding = padding(header.size);
                    return Ok(Some(header));
                }
            }
        }
    }

    /// More data of the current entry, or nothing when that was all.
    pub(crate) async fn data(&mut self) -> Result<Option<Bytes>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let piece = self.some(most).await?;
        self.left -= piece.len() as u64;
        Ok(Some(piece))
    }

    /// Leaves the rest of an entry out.
    async fn skip(&mut self) -> Result<(), Error> {
        while self.data().await?.is_some() {}
        while self.padding > 0 {
            let most = usize::try_from(self.padding).unwrap_or(BLOCK);
            self.padding -= self.some(most).await?.len() as u64;
        }
        Ok(())
    }

    /// All data of an entry that must be short.
    async fn short(&mut self) -> Result<Vec<u8>, Error> {
        if self.left > LONGEST_RECORDS {
            return Err(wrong("the records of an entry are too long"));
        }
        self.padding = padding(self.left);
        let mut all = Vec::new();
        while let Some(piece) = self.data().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    async fn block(&mut self) -> Result<Block, Error> {
        let mut gathered = BytesMut::with_capacity(BLOCK);
        while gathered.len() < BLOCK {
            let most = BLOCK - gathered.len();
            gathered.extend_from_slice(&self.some(most).await?);
        }
        let mut block = [0; BLOCK];
        block.copy_from_slice(&gathered);
        Ok(block)
    }

    /// At least one byte and at most this many.
    async fn some(&mut self, most: usize) -> Result<Bytes, Error> {
        while self.buffer.is_empty() {
            let Some(piece) = self.body.next().await else {
                let short = "the archive ends before its end";
                return Err(Error::new(ErrorKind::Truncated, short));
            };
            self.buffer = piece?;
        }
        Ok(self.buffer.split_to(most.min(self.buffer.len())))
    }
}

fn wrong(what: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, what)
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    let text = bytes.split(|byte| *byte == 0).next();
    text.unwrap_or_default().to_vec()
}

/// Reads `LENGTH KEY=VALUE\n` again and again. The size of a pax record wins over that of the header.
fn pax(mut data: &[u8], records: &mut Records) -> Result<(), Error> {
    let malformed = || wrong("the records of an entry are malformed");
    while !data.is_empty() {
        let blank = data.iter().position(|byte| *byte == b' ');
        let digits = data.get(..blank.ok_or_else(malformed)?);
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        let length: usize = digits
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(malformed)?;
        let (record, rest) = data.split_at_checked(length).ok_or_else(malformed)?;
        let record = record
            .get(blank.map_or(0, |blank| blank + 1)..)
            .and_then(|record| record.strip_suffix(b"\n"))
            .ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=');
        let (key, value) = record
            .split_at_checked(equals.ok_or_else(malformed)?)
            .ok_or_else(malformed)?;
        let value = value.get(1..).unwrap_or_default();
        match key {
            b"path" => records.name = Some(value.to_vec()),
            b"linkpath" => records.link = Some(value.to_vec()),
            b"size" => {
                let size = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                records.size = Some(size.ok_or_else(malformed)?);
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err(wrong("a file with holes that are left out"));
            }
            _ => {}
        }
        data = rest;
    }
    Ok(())
}
