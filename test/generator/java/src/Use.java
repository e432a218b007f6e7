import java.io.File;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.ApiKeysApi;
import org.openapitools.client.api.FilesApi;
import org.openapitools.client.api.UsersApi;
import org.openapitools.client.model.CreateApiKeyRequest;
import org.openapitools.client.model.CreateUserRequest;
import org.openapitools.client.model.Scope;
import org.openapitools.client.model.SignFile200Response;
import org.openapitools.client.model.StoredFile;

/** A program that uses the API by generated classes. test/client/generated.test.ts generates, compiles and runs them. */
public class Use {
  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(args[0]);
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + args[1]));
    FilesApi files = new FilesApi(client);

    File note = write("note.txt", "hello");
    StoredFile file = files.uploadFile(
        FilesApi.APIUploadFileRequest.newBuilder()._file(note).properties("{\"folder\":\"a/b\"}").build()).getData();
    String id = file.getId();
    boolean isListed = files.listFiles(FilesApi.APIListFilesRequest.newBuilder().limit(5).folder("a/b").build())
        .getData().stream().anyMatch(one -> one.getId().equals(id));
    SignFile200Response link = files.signFile(FilesApi.APISignFileRequest.newBuilder().id(id).expiresIn(60).build());
    HttpRequest signed = HttpRequest.newBuilder(link.getSignedUrl()).build();
    String content = HttpClient.newHttpClient().send(signed, HttpResponse.BodyHandlers.ofString()).body();
    // The library native sends every body as JSON, so that this is a plain request.
    HttpRequest put = HttpRequest.newBuilder(URI.create(args[0] + "/docs/v1/uploads/" + id + "/transcript?language=en"))
        .header("Authorization", "Bearer " + args[1]).header("Content-Type", "text/vtt")
        .PUT(HttpRequest.BodyPublishers.ofString("WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n")).build();
    String set = HttpClient.newHttpClient().send(put, HttpResponse.BodyHandlers.ofString()).body();
    String language = client.getObjectMapper().readTree(set).get("data").get("language").asText();
    var one = FilesApi.APIGetFileMetadataRequest.newBuilder().id(id).build();
    boolean hasPeaks = files.getFileMetadata(one).getData().getPeaks() != null;
    boolean isDeleted = files.deleteFile(FilesApi.APIDeleteFileRequest.newBuilder().id(id).build()).getStatus();
    int missing = 0;
    try {
      files.getFileMetadata(one);
    } catch (ApiException error) {
      missing = error.getCode();
    }
    UsersApi users = new UsersApi(client);
    CreateUserRequest account = new CreateUserRequest().email("ada@example.com").password("correct horse battery");
    var created = users.createUser(UsersApi.APICreateUserRequest.newBuilder().createUserRequest(account).build());
    var user = users.getUser(UsersApi.APIGetUserRequest.newBuilder().id(created.getData().getId()).build());
    String email = user.getData().getEmail();
    ApiKeysApi keys = new ApiKeysApi(client);
    CreateApiKeyRequest reader = new CreateApiKeyRequest().name("Reader").scopes(Set.of(Scope.FILES_READ));
    var key = keys.createApiKey(ApiKeysApi.APICreateApiKeyRequest.newBuilder().createApiKeyRequest(reader).build()).getData();
    var found = keys.getApiKey(ApiKeysApi.APIGetApiKeyRequest.newBuilder().id(key.getId()).build()).getData();
    boolean isKey = found.getScopes().equals(List.of(Scope.FILES_READ));

    Map<String, Object> result = new LinkedHashMap<>();
    result.put("folder", file.getFolder());
    result.put("isListed", isListed);
    result.put("content", content);
    result.put("language", language);
    result.put("hasPeaks", hasPeaks);
    result.put("isDeleted", isDeleted);
    result.put("missing", missing);
    result.put("email", email);
    result.put("isKey", isKey);
    System.out.println(client.getObjectMapper().writeValueAsString(result));
  }

  static File write(String name, String text) throws Exception {
    File file = Files.createTempDirectory("stowage").resolve(name).toFile();
    Files.writeString(file.toPath(), text);
    return file;
  }
}
